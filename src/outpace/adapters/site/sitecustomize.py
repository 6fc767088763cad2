"""Wait in a target's process for torch, then hand over to outpace; leave no other trace.

Python imports this before the target's first line. It puts the environment and the path back as
they were, lets the user's own ``sitecustomize`` run, and watches for the import of torch.
"""


def _outpace_wait_for_torch():
    import os
    import sys

    spec = os.environ.get("OUTPACE_CHILD")
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p) != here]
    ours = sys.modules.pop("sitecustomize")
    try:
        if spec is None:
            return
        direct = os.environ.get("OUTPACE_DIRECT") == "1"
        if direct:
            _restore(os.environ)
        elif "RANK" not in os.environ:
            return
        # multiprocessing's "spawn" starts python anew for each worker: those are not the target.
        if "multiprocessing.spawn" in " ".join(sys.orig_argv) or "--multiprocessing-fork" in sys.argv:
            return

        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name != "torch":
                    return None
                sys.meta_path.remove(self)
                from importlib.util import find_spec

                found = find_spec("torch")
                if found is None or found.loader is None:
                    return found
                original = found.loader.exec_module

                def exec_module(module):
                    try:
                        original(module)
                    finally:
                        del found.loader.exec_module
                    _begin(spec)

                found.loader.exec_module = exec_module
                return found

        sys.meta_path.insert(0, Finder())
    finally:
        try:
            import sitecustomize  # noqa: F401  (the user's own, if there is one)
        except ImportError as error:
            if error.name != "sitecustomize":
                raise
        finally:
            sys.modules.setdefault("sitecustomize", ours)


def _restore(environment):
    before = environment.pop("OUTPACE_PYTHONPATH", None)
    environment.pop("OUTPACE_CHILD", None)
    environment.pop("OUTPACE_DIRECT", None)
    if before is None:
        environment.pop("PYTHONPATH", None)
    else:
        environment["PYTHONPATH"] = before


def _begin(spec):
    import sys

    try:
        from outpace.adapters.child import begin
    except Exception as error:
        print(f"outpace: {error!r}; the target goes on unwatched", file=sys.stderr)
        return
    begin(spec)


_outpace_wait_for_torch()
del _outpace_wait_for_torch
