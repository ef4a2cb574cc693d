"""The state tables of the core and of the producer, and the page that draws them."""
