"""The Swift task: what ms-swift is given to load, feed, tune, train and measure."""
