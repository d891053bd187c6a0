"""What the containers of the node's Pods were started with: reported, and restarted where it is out of date."""
