"""A model that is loaded: weights, vocabulary, chat template and instances."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from caesar_backend_local_llm.engine.failures import ModelLoadError
from caesar_backend_local_llm.engine.grammars.grammar import Grammars
from caesar_backend_local_llm.engine.instance import Instance
from caesar_backend_local_llm.engine.memory import available_bytes, give_back
from caesar_backend_local_llm.engine.weights import Weights
from caesar_backend_local_llm.generation.chat_templates import (
    ChatRefused,
    ChatTemplate,
    TemplateProblem,
)
from caesar_backend_local_llm.gguf_files import (
    UnusableFileError,
    format_size,
    read_model_file,
)
from caesar_backend_local_llm.options import USUAL_CONTEXT_TOKENS, ModelPlan


class LoadedModel:
    """What a model's requests need.  Safe for threads, but for each of its instances.

    :param plan: how it is run.
    :param progress: asked while the weights are read, with the share that is done, 0 to 1; False
        ends the loading.
    :raises ModelLoadError: if it cannot be loaded, with a sentence that tells why.
    """

    def __init__(self, plan: ModelPlan, progress: Callable[[float], bool] | None = None) -> None:
        self.plan = plan
        self.name = plan.name
        path = _checked_path(plan)
        given = _given_template(plan)
        with ExitStack() as stack:
            self._weights = _weights(plan, path, progress)
            stack.callback(self._weights.close)
            self.vocabulary = self._weights.vocabulary
            self.grammars = Grammars(self.vocabulary)
            self.recommended = self._weights.recommended()
            #: The chat template, or why there is none.
            self.template = self._compiled(given)
            self.instances = self._made_instances(stack)
            self.context_tokens = self.instances[0].context_tokens
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Give its memory back; nothing may be using it."""
        self._stack.close()
        give_back()

    def _made_instances(self, stack: ExitStack) -> tuple[Instance, ...]:
        plan = self.plan
        context = plan.n_ctx or min(self._weights.trained_context_tokens, USUAL_CONTEXT_TOKENS)
        batch = min(plan.batch_tokens, context)
        _check_memory(plan, context, self._weights.context_bytes(context, batch))
        made = []
        for _ in range(plan.instances):
            instance = Instance(
                self._weights,
                context_tokens=context,
                batch_tokens=batch,
                threads=plan.n_threads,
            )
            stack.callback(instance.close)
            made.append(instance)
        return tuple(made)

    def _compiled(self, given: str | None) -> ChatTemplate | str:
        """Return the template.

        One that the operator gave must work; without the file's own, completions still do.
        """
        source = self._weights.chat_template if given is None else given
        if source is None:
            return "the file has no chat template; set chat_template"
        try:
            template = ChatTemplate(
                source,
                beginning=self._name_of(self.vocabulary.beginning),
                end=self._name_of(self.vocabulary.end),
            )
            if given is not None:
                _try(template)
        except TemplateProblem as problem:
            if given is not None:
                raise ModelLoadError(str(problem)) from problem
            return f"{problem}; set chat_template"
        return template

    def _name_of(self, token: int | None) -> str:
        return "" if token is None else self.vocabulary.name(token)


def _checked_path(plan: ModelPlan) -> Path:
    try:
        return read_model_file(plan.path).path
    except UnusableFileError as error:
        raise ModelLoadError(str(error)) from error


def _weights(plan: ModelPlan, path: Path, progress: Callable[[float], bool] | None) -> Weights:
    try:
        return Weights(
            str(path),
            gpu_layers=plan.gpu_layers,
            mmap=plan.mmap,
            mlock=plan.mlock,
            progress=progress,
        )
    except ModelLoadError as error:
        raise ModelLoadError(f"{path}: {error.sentence}") from error


def _check_memory(plan: ModelPlan, context: int, each_bytes: int | None) -> None:
    """Refuse what there is no memory for, before it is taken.

    :raises ModelLoadError: if the contexts take more than there is.
    """
    free_bytes = available_bytes()
    if each_bytes is None or free_bytes is None or plan.gpu_layers:
        return
    wanted_bytes = plan.instances * each_bytes
    if wanted_bytes > free_bytes:
        raise ModelLoadError(
            f"not enough memory: {plan.instances} x a context of {context} tokens take "
            f"{format_size(wanted_bytes)}, and {format_size(free_bytes)} are free; lower n_ctx or "
            "instances"
        )


def _given_template(plan: ModelPlan) -> str | None:
    """Return the operator's template, or None."""
    if plan.chat_template is not None and plan.chat_template_file is not None:
        raise ModelLoadError("chat_template and chat_template_file are both set; use one of them")
    if plan.chat_template_file is None:
        return plan.chat_template
    try:
        return Path(plan.chat_template_file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelLoadError(f"chat_template_file: cannot be read: {error}") from error


def _try(template: ChatTemplate) -> None:
    """Write the simplest chat.

    :raises TemplateProblem: if the template fails.
    """
    with suppress(ChatRefused):  # a template may want more than that
        template.render([{"role": "user", "content": "Hello"}])
