"""How good predictions are: metrics, events, intervals, baselines, calibration, report."""
