"""The time line and the sequence: steps, blocks, anchors, positions, layouts. Knows no other room."""
