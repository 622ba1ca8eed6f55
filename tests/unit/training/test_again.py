import torch

from tensorldm.training.again import Again


class _Counting:
    """A stream that counts what it is asked for."""

    def __init__(self, stream) -> None:
        self.stream, self.asked = stream, []

    def batch(self, *, seed, position, size):
        self.asked.append(position)
        return self.stream.batch(seed=seed, position=position, size=size)


def test_a_second_player_sees_the_samples_of_the_first_without_their_being_made_again(heads):
    counting = _Counting(heads)
    stream = Again(counting, 2)
    turns = [[stream.batch(seed=0, position=place, size=2) for place in (4, 6)] for _ in range(2)]
    assert counting.asked == [4, 6]
    for first, second in zip(*turns, strict=True):
        assert torch.equal(first.dwi, second.dwi)
    assert not torch.equal(turns[0][0].components, turns[0][1].components)


def test_only_the_last_batches_are_kept_and_what_is_made_anew_is_the_same(heads):
    counting = _Counting(heads)
    stream = Again(counting, 1)
    first = stream.batch(seed=0, position=0, size=1)
    stream.batch(seed=0, position=1, size=1)
    again = stream.batch(seed=0, position=0, size=1)
    assert counting.asked == [0, 1, 0]
    assert torch.equal(first.components, again.components)
