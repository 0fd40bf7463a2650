"""What a user of the published SDK does, from creation to deletion. Prints one line a step; any failure is a traceback."""

import sys

from openshell import SandboxClient
from openshell._proto import openshell_pb2


def main(image: str, name: str) -> None:
    client = SandboxClient.from_active_cluster(timeout=60.0)
    print("health", client.health().version)
    spec = openshell_pb2.SandboxSpec(template=openshell_pb2.SandboxTemplate(image=image))
    created = client.create(workspace="default", spec=spec, name=name)
    print("created", created.name)
    client.wait_ready(name, workspace="default", timeout_seconds=180)
    print("ready")
    first = client.exec(name, ["sh", "-c", "echo out; echo err >&2; cat; echo kept > /sandbox/kept; exit 3"],
                        workspace="default", stdin=b"in\n", env={"WORD": "x"}, timeout_seconds=20)
    print("exec", first.exit_code, repr(first.stdout), repr(first.stderr))
    client.stop(name, workspace="default")
    client.wait_stopped(name, workspace="default", timeout_seconds=120)
    print("stopped")
    client.start(name, workspace="default")
    client.wait_ready(name, workspace="default", timeout_seconds=180)
    second = client.exec(name, ["cat", "/sandbox/kept"], workspace="default")
    print("exec", second.exit_code, repr(second.stdout))
    listed = [one.name for one in client.list_all(workspace="default")]
    print("listed", name in listed)
    client.delete(name, workspace="default")
    client.wait_deleted(name, workspace="default", timeout_seconds=120)
    print("deleted")


main(*sys.argv[1:])
