"""Device claims at admission: what pods ask for by ResourceClaim, counted against quota. Kubernetes' claims of devices;
``controller.engine.claims`` is about reservations of quota.
"""
