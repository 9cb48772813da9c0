"""From LLVM code to an object file for a CPU; llvmlite has the code generators of all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import llvmlite.binding as llvm

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()


@dataclass(frozen=True)
class Target:
    """A CPU, as LLVM describes it."""

    architecture: str
    cpu: str
    features: str = ""

    def machine(self) -> llvm.TargetMachine:
        """Return LLVM's code generator, for code that runs at any address."""
        return llvm.Target.from_triple(f"{self.architecture}-unknown-linux-gnu") \
            .create_target_machine(cpu=self.cpu, features=self.features, opt=3, reloc="pic",
                                   codemodel="default")


TARGETS = {
    "x86-64-v2": Target("x86_64", "x86-64-v2"),
    "x86-64-v3": Target("x86_64", "x86-64-v3"),
    "x86-64-v4": Target("x86_64", "x86-64-v4", "-prefer-256-bit"),
    "aarch64": Target("aarch64", "generic"),
}

#: With this call numba begins to report an exception. Kernels raise none, but LLVM does not always
#: see that; instead of going on with a wrong result, the process would end.
_RAISE = """
define void @numba_gil_ensure(ptr %state) noreturn cold {
  call void @llvm.trap()
  unreachable
}
declare void @llvm.trap()
"""

#: What LLVM may call by itself. The kernels need nothing else that is not in them.
_MEMORY = """
define hidden ptr @memset(ptr %to, i32 %value, i64 %count) "no-builtins" {
  %byte = trunc i32 %value to i8
  br label %test
test:
  %i = phi i64 [0, %0], [%next, %step]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %step, label %done
step:
  %at = getelementptr i8, ptr %to, i64 %i
  store i8 %byte, ptr %at
  %next = add i64 %i, 1
  br label %test
done:
  ret ptr %to
}
define hidden ptr @memcpy(ptr %to, ptr %from, i64 %count) "no-builtins" {
  br label %test
test:
  %i = phi i64 [0, %0], [%next, %step]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %step, label %done
step:
  %at = getelementptr i8, ptr %to, i64 %i
  %source = getelementptr i8, ptr %from, i64 %i
  %byte = load i8, ptr %source
  store i8 %byte, ptr %at
  %next = add i64 %i, 1
  br label %test
done:
  ret ptr %to
}
"""


def emit(texts: Iterable[str], target: Target, exported: str) -> bytes:
    """Return an object file (ELF) with the functions whose names begin with ``exported``."""
    machine = target.machine()
    module = llvm.parse_assembly(_RAISE)
    for text in texts:
        text = re.sub(r"^target (triple|datalayout) = .*$", "", text, flags=re.MULTILINE)
        module.link_in(_with_private_parts(llvm.parse_assembly(text), exported))
    _with_private_parts(module, exported)
    _optimise(module, machine)
    module.link_in(llvm.parse_assembly(_MEMORY))
    for function in module.functions:
        function.add_function_attribute("nounwind")  # no tables to unwind the stack
    return machine.emit_object(module)


def _with_private_parts(module: llvm.ModuleRef, exported: str) -> llvm.ModuleRef:
    """Hide everything but the exported functions."""
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and not value.name.startswith(exported):
            value.linkage = "internal"
    return module


def _optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """Optimise like numba: cheap passes first. Without them, some kernels are 10 to 25 % slower."""
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.PipelineTuningOptions(speed_level=0))
    cheap = builder.getModulePassManager()
    cheap.add_loop_rotate_pass()
    cheap.add_instruction_combine_pass()
    cheap.add_jump_threading_pass()
    cheap.run(module, builder)
    options = llvm.PipelineTuningOptions(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
