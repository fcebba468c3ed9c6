"""Puts the task into ms-swift's tables. Doing it twice is the same as doing it once."""

from __future__ import annotations

from swift.callbacks import callbacks_map
from swift.dataset import register_dataset
from swift.metrics import eval_metrics_map
from swift.model import register_model
from swift.optimizers import optimizers_map
from swift.template import register_template
from swift.trainers import TrainerFactory
from swift.tuner_plugin import tuners_map

from swift_plugin.task.arguments import EVAL_METRIC, FIRST_STEP_CALLBACK, OPTIMIZER, SUMMARY_CALLBACK, TUNER_TYPE
from swift_plugin.task.callbacks import FirstStepCallback, SummaryCallback
from swift_plugin.task.dataset import dataset_meta
from swift_plugin.task.loader import TASK_TYPE, model_meta
from swift_plugin.task.metrics import TurnMetrics
from swift_plugin.task.optimizer import TurnOptimizerCallback
from swift_plugin.task.template import template_meta
from swift_plugin.task.tuner import TurnTuner


def register() -> None:
    register_model(model_meta(), exist_ok=True)
    register_template(template_meta(), exist_ok=True)
    register_dataset(dataset_meta(), exist_ok=True)
    TrainerFactory.TRAINER_MAPPING[TASK_TYPE] = "swift_plugin.task.trainer.TurnTrainer"
    TrainerFactory.TRAINING_ARGS_MAPPING[TASK_TYPE] = "swift_plugin.task.arguments.TurnTrainingArguments"
    tuners_map[TUNER_TYPE] = TurnTuner
    optimizers_map[OPTIMIZER] = TurnOptimizerCallback
    eval_metrics_map[EVAL_METRIC] = TurnMetrics
    callbacks_map[FIRST_STEP_CALLBACK] = FirstStepCallback
    callbacks_map[SUMMARY_CALLBACK] = SummaryCallback
