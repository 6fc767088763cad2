"""Wait in a target's process for the import of torch, then hand over to outpace.

Python imports this before the target's first line, since this folder is on PYTHONPATH. It takes the
folder off the path again, puts the environment back as it was, and lets the user's own
``sitecustomize`` run. Only ``os``, ``sys`` and ``time`` are used, which are loaded by then; where the run is
to be thrown away, its writes are redirected from here on.

Environment (see `outpace.adapters.launch`): OUTPACE_CHILD names the spec, OUTPACE_PYTHONPATH holds
PYTHONPATH as it was, OUTPACE_SHADOW names scratch and other folders of a run that is thrown away, one a
line, and OUTPACE_GUARDED says that the kernel keeps the user's files too.
"""

# mypy: allow-untyped-defs, allow-untyped-calls


def _outpace():
    import os
    import sys
    import time

    variables = ("CHILD", "SHADOW", "GUARDED", "DIRECT", "PYTHONPATH")
    launchers = ("torchrun", "accelerate", "torch.distributed.run", "torch.distributed.launch",
                 "accelerate.commands.launch", "deepspeed", "deepspeed.launcher.launch",
                 "horovodrun", "mpirun")  # fmt: skip

    def take_off_path():
        here = os.path.dirname(__file__)
        sys.path[:] = [entry for entry in sys.path if entry != here]
        sys.path_importer_cache.pop(here, None)

    def is_target():
        # torchrun and its like start the ranks; multiprocessing starts python anew for a worker.
        # Also of a Python that cannot run us: what it writes is to be kept from the user's files first.
        words = getattr(sys, "orig_argv", None) or getattr(sys, "argv", [""])
        # The script, or what is after -m or -c: of its own arguments there are as many as in sys.argv.
        argv = getattr(sys, "argv", words)
        program = words[-len(argv) :][:1]
        code = program[0] if argv[:1] == ["-c"] else ""
        if "multiprocessing" in code and "import" in code:
            return False
        program = [word.removeprefix("-m") for word in program]
        started = [os.path.basename(word) for word in program]
        return "RANK" in os.environ or not any(word in launchers for word in started)

    def take_variables():
        found = {name: os.environ.pop("OUTPACE_" + name, None) for name in variables}
        if found["PYTHONPATH"] is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = found["PYTHONPATH"]
        return found

    def redirect_writes(places, guarded):
        try:
            from outpace.seams.writes import install

            scratch, *allow = places.split("\n")
            install(scratch, allow)
        except Exception as error:
            message = f"outpace: what the target writes can't be redirected ({error!r})"
            if guarded:
                print(message + "; the target goes on unwatched", file=sys.stderr)
                return False
            print(message + "; it is not run, to keep your files", file=sys.stderr)
            sys.stderr.flush()
            os._exit(2)
        return True

    def begin(spec, import_began_ns):
        try:
            from outpace.adapters.child import begin
        except Exception as error:
            print(f"outpace: {error!r}; the target goes on unwatched", file=sys.stderr)
        else:
            begin(spec, import_began_ns)

    class TorchFinder:
        """Calls ``begin`` when torch was imported, and goes."""

        def __init__(self, spec):
            self.spec = spec

        def find_spec(self, name, path=None, target=None):
            if name != "torch":
                return None
            for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
                find = getattr(finder, "find_spec", None)
                found = find(name, path, target) if find is not None else None
                if found is not None:
                    self.follow(found.loader)
                    return found
            return None

        def follow(self, loader):
            try:
                execute = loader.exec_module
                loader.exec_module = lambda module: self.run(loader, execute, module)
            except AttributeError as error:
                print(f"outpace: {error!r}; the target goes on unwatched", file=sys.stderr)

        def run(self, loader, execute, module):
            loader.__dict__.pop("exec_module", None)
            began_ns = time.perf_counter_ns()
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                begin(self.spec, began_ns)

    take_off_path()
    if "OUTPACE_CHILD" in os.environ and is_target():
        found = take_variables()
        places = found["SHADOW"]
        if places is None or redirect_writes(places, found["GUARDED"]):
            sys.meta_path.insert(0, TorchFinder(found["CHILD"]))


def _next():
    """The user's own ``sitecustomize``, which this one stood before."""
    import sys

    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        # The import of this module, still under way, wants to find something there.
        sys.modules.setdefault("sitecustomize", ours)


_outpace()
_next()
