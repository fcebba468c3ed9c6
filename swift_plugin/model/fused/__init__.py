"""The decoder layer of the Thinker with LoRA, written for the speed of one training step.

Same numbers as the native layer with PEFT's adapters, fewer passes over memory: adapters computed in the type of the
activations while their weights stay in float32, the low-rank part inside the frozen matrix product, dropout masks
that are computed where they are needed instead of being stored.
"""
