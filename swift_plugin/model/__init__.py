"""The Thinker's language model without towers, the turn head, the loss."""
