"""The mixture of experts: routing, dispatch to the ranks that own the experts, combination (docs/model.md, Experts)."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from dsv4bench.errors import UsageError
from dsv4bench.model.batch import ROW_MULTIPLE
from dsv4bench.model.config import ModelConfig
from dsv4bench.model.exchange import ExpertExchange


class Router:
    """Which experts a token goes to, and with which weights."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str, config: ModelConfig) -> None:
        """`prefix` ends before weight and either bias (learned routing) or tid2eid (routing by token id)."""
        self.topk, self.scaling = config.num_experts_per_tok, config.routed_scaling_factor
        self.gate = weights[f"{prefix}weight"]
        self.by_token = weights.get(f"{prefix}tid2eid")
        self.bias = weights.get(f"{prefix}bias")

    def __call__(self, x: Tensor, token_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Rows float32 [T, D], token ids [T] -> experts int64 [T, k] and weights float32 [T, k]."""
        scores = F.softplus(F.linear(x, self.gate)).sqrt()
        if self.by_token is not None:
            experts = self.by_token.index_select(0, token_ids)
        else:
            ranking = scores if self.bias is None else scores + self.bias
            experts = ranking.topk(self.topk, dim=1).indices
        chosen = scores.gather(1, experts)
        return experts, chosen * (self.scaling / chosen.sum(1, keepdim=True))


class Experts:
    """The experts that one rank owns, as one batch of matrices."""

    def __init__(
        self, weights: Mapping[str, Tensor], prefix: str, config: ModelConfig, owned: range | None
    ) -> None:
        """`prefix` ends before the expert numbers in `owned`; None takes `prefix` itself as the only expert."""
        names = [prefix] if owned is None else [f"{prefix}{expert}." for expert in owned]
        self.count, self.limit = len(names), config.swiglu_limit
        stack = {part: torch.stack([weights[f"{name}{part}.weight"] for name in names]) for part in _PARTS}
        # [experts, in, out]: gate and up side by side, then down.
        self.gate_up = torch.cat((stack["w1"], stack["w3"]), dim=1).transpose(1, 2).contiguous()
        self.down = stack["w2"].transpose(1, 2).contiguous()

    def each(self, x: Tensor) -> Tensor:
        """Expert e on its own rows: float32 [experts, C, D] -> the same shape."""
        gate, up = torch.bmm(x, self.gate_up).chunk(2, dim=2)
        return torch.bmm(F.silu(gate.clamp(max=self.limit)) * up.clamp(-self.limit, self.limit), self.down)

    def __call__(self, x: Tensor, owned: Tensor) -> Tensor:
        """Row i through the rank's expert `owned[i]` (0-based among its own): float32 [M, D] -> [M, D]."""
        if not len(x):
            return x
        # Lay rows out by expert, each expert padded to the fullest one: two batched products do all experts.
        running = F.one_hot(owned, self.count).cumsum(0)
        capacity = max(int(running[-1].max()), ROW_MULTIPLE)
        places = owned * capacity + running.gather(1, owned.unsqueeze(1)).squeeze(1) - 1
        padded = x.new_zeros(self.count * capacity, x.shape[1]).index_copy_(0, places, x)
        return self.each(padded.view(self.count, capacity, -1)).flatten(0, 1).index_select(0, places)


class MoE:
    """One layer's feed-forward part: shared expert, router and this rank's share of the routed experts."""

    def __init__(
        self, weights: Mapping[str, Tensor], prefix: str, config: ModelConfig, exchange: ExpertExchange
    ) -> None:
        """`prefix` ends before gate, experts and shared_experts.

        Raises UsageError if the ranks cannot share the experts equally.
        """
        total, ranks = config.n_routed_experts, exchange.ranks
        if total % ranks:
            usable = [count for count in range(1, total + 1) if total % count == 0]
            raise UsageError(
                f"{total} routed experts cannot be shared equally by {ranks} ranks; rank counts that work: "
                f"{', '.join(map(str, usable))}."
            )
        self.exchange, self.topk, self.per_rank = exchange, config.num_experts_per_tok, total // ranks
        self.first = exchange.rank * self.per_rank
        self.router = Router(weights, f"{prefix}gate.", config)
        self.shared = Experts(weights, f"{prefix}shared_experts.", config, None)
        owned = range(self.first, self.first + self.per_rank)
        self.experts = Experts(weights, f"{prefix}experts.", config, owned)

    def __call__(self, x: Tensor, token_ids: Tensor) -> Tensor:
        """Normalised rows float32 [T, D] -> [T, D]; joins two exchanges, with T = 0 as well.

        Every route returns on its own and is added in route order (shared, then k = 0..), so that the
        result does not depend on the number of ranks.
        """
        experts, weights = self.router(x, token_ids)
        routed = self._routed(x, experts)
        combined = self.shared.each(x.unsqueeze(0)).squeeze(0)
        for k in range(self.topk):
            combined = torch.addcmul(combined, routed[:, k], weights[:, k : k + 1])
        return combined

    def _routed(self, x: Tensor, experts: Tensor) -> Tensor:
        """Unweighted expert outputs per route: x [T, D], experts [T, k] -> [T, k, D]."""
        target, order = experts.flatten().sort(stable=True)
        # The expert's number travels as one more channel; float32 is exact for it.
        rows = torch.cat((x.index_select(0, order // self.topk), target.unsqueeze(1).float()), dim=1)
        counts = torch.bincount(target // self.per_rank, minlength=self.exchange.ranks).tolist()
        received, received_counts = self.exchange.all_to_all(rows, counts)
        outputs = self.experts(received[:, :-1], received[:, -1].long() - self.first)
        returned, _ = self.exchange.all_to_all(outputs, received_counts)
        return torch.empty_like(returned).index_copy_(0, order, returned).view(*experts.shape, x.shape[1])


_PARTS = ("w1", "w2", "w3")
