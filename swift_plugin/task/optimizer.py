"""`--optimizer turn`: adapters at `--learning_rate`, the head at its own."""

from __future__ import annotations

from swift.optimizers import OptimizerCallback
from torch.optim import Optimizer
from transformers import Trainer

HEAD_GROUP = "head"
ADAPTER_GROUP = "adapter"


class TurnOptimizerCallback(OptimizerCallback):
    """Groups by rate and by weight decay; a group that would be empty, or of two types, is never made."""

    def create_optimizer(self, model=None) -> Optimizer:
        trainer, args = self.trainer, self.args
        model = trainer.model if model is None else model
        decayed = set(trainer.get_decay_parameter_names(model))
        head_rate = args.turn_options.head_learning_rate
        rates = {ADAPTER_GROUP: args.learning_rate, HEAD_GROUP: args.learning_rate if head_rate is None else head_rate}
        groups: dict[tuple, list] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                part = HEAD_GROUP if "turn_head." in name else ADAPTER_GROUP
                # ZeRO-3 takes one type a group.
                groups.setdefault((part, name in decayed, parameter.dtype), []).append(parameter)
        optimizer_class, optimizer_kwargs = Trainer.get_optimizer_cls_and_kwargs(args, model)
        return optimizer_class(
            [
                {
                    "params": parameters,
                    "lr": rates[part],
                    "weight_decay": args.weight_decay if decays else 0.0,
                    "name": part,
                }
                for (part, decays, _), parameters in groups.items()
            ],
            **optimizer_kwargs,
        )
