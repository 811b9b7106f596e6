"""``tessera page``: shows the page in a browser, with the rights of the kubeconfig."""
