"""Queues that divide what there is in proportion to their weights: KAI's fair shares, limits, order and reclaim."""
