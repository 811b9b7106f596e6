"""Queues that divide the cluster in proportion to their weights: KAI's fair shares, limits, order and reclaim."""
