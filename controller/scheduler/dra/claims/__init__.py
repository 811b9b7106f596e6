"""Device claims at admission: what pods request through ResourceClaims, counted against quota. These are Kubernetes'
claims of devices; ``controller.scheduler.reservations`` is about reservations of quota.
"""
