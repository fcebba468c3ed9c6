"""One HTML file that shows how good predictions are and replays them beside the film."""
