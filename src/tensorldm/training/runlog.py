"""What a run tells: a line of JSON per record, a progress bar with throughput, TensorBoard where it is installed."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@runtime_checkable
class Writer(Protocol):
    """The part of TensorBoard's writer that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Note one number."""

    def add_image(self, tag: str, img_tensor: Any, global_step: int) -> None:
        """Note one picture, channels first."""


class RunLog:
    """Appends to ``RUN/log.jsonl`` and draws the bar; on other ranks it does nothing."""

    def __init__(self, run: Path, *, active: bool = True, console: Console | None = None) -> None:
        self.path = run / "log.jsonl"
        self.active = active
        self.writer: Writer | None = _tensorboard(run / "tensorboard") if active else None
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[rate]}"),
            console=console or Console(stderr=True),
            disable=not active,
        )
        self.task = self.progress.add_task("", rate="", visible=False)

    def __enter__(self) -> "RunLog":
        if self.active:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.progress.stop()

    def begin(self, title: str, *, step: int, steps: int) -> None:
        """Show a bar for a stage from this step on."""
        self.progress.reset(self.task, description=title, completed=step, total=steps, rate="", visible=True)

    def advance(self, step: int, *, steps: int) -> None:
        """Move the bar; ``steps`` are as many as there will be, which a clock may decide."""
        self.progress.update(self.task, completed=step, total=steps)

    def record(self, event: str, *, stage: int, step: int, **values: Any) -> None:
        """Append one line; numbers go to TensorBoard too."""
        if not self.active:
            return
        line = json.dumps({"event": event, "stage": stage, "step": step, **values}, allow_nan=False)
        with self.path.open("a", encoding="utf-8") as log:
            log.write(line + "\n")
        if event == "train" and "samples_per_second" in values:
            text = f"loss {values['loss']:.4g} · {values['samples_per_second']:.3g} samples/s"
            self.progress.update(self.task, rate=text)
        if self.writer is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self.writer.add_scalar(f"stage{stage}/{event}/{name}", float(value), step)

    def picture(self, name: str, image: Any, *, stage: int, step: int) -> None:
        """Hand a picture (channels first, 0..1) to TensorBoard, where there is one."""
        if self.writer is not None:
            self.writer.add_image(f"stage{stage}/{name}", image, step)

    def say(self, sentence: str) -> None:
        """A sentence for the person who watches."""
        if self.active:
            self.progress.console.print(sentence, highlight=False, soft_wrap=True)


def read_log(run: Path) -> list[dict[str, Any]]:
    """Every record of a run; a last line cut short by a kill is left out."""
    records = []
    for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records


def _tensorboard(folder: Path) -> Writer | None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    writer: Writer = SummaryWriter(str(folder))
    return writer
