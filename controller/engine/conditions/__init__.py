"""What a decision says: conditions of the Workload, reasons, records of the arithmetic, and sentences made of them."""
