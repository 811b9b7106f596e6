"""A recorded history of a cluster, and whether what it shows may be.

    JSON lines -> record.read -> facts -> judge -> findings

Nothing here is shared with the product: no import, no constant. What the product wrote into a status is never believed
where the same can be counted from the objects of users, kubelets and hardware.
"""
