from pi.harness import *
from pi.product import *
from pi.test_failures import *
import pytest
@pytest.mark.parametrize("args,model",[([],"fake/fake-2"),(["--thinking","high"],"fake/fake-1")])
def test_x(home, args, model):
    home.script(Step(text="window zero", tools=[NEW]), Step(text="the end"))
    with home.rpc() as pi:
        pi.prompt("the task")
        answered(pi, "the end")
        assert pi.close() == 0
    [file] = home.session_files()
    lines = file.read_bytes().split(b"\n")
    last = home.session().types.index("branch_summary") + 1
    file.write_bytes(b"\n".join(lines[: last + 1]) + b"\n")
    with home.rpc(args=["--session", str(file), *args], model=model) as pi:
        pi.call("get_state")
        pi.prompt("/context status")
        print(notices(pi)[-1])
        assert pi.close() == 0
    print(home.version, home.session().types[last-1:])
