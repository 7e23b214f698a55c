"""What the journal of a node can promise now."""

from disqued.core.model.watermark import Watermark


class Durability:
    """Set by the driver, except for the watermark."""

    __slots__ = ("read_only", "watermark")

    def __init__(self) -> None:
        self.read_only: bool = False  #: the journal takes no jobs now
        self.watermark: Watermark = Watermark()  #: up to when delayed jobs have been queued
