"""The API objects the controller reads, as small typed values: JSON in, frozen structs out, the rest left behind."""
