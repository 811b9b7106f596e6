"""What-if: the changes that a manifest, or another quota, would bring. The real engine answers, in a process of its
own, on copies.
"""
