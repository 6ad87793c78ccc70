"""Flower's messages without its processes: a Grid that calls each node's ClientApp as soon as a message is sent."""

from __future__ import annotations

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from ownstep.engines.federation.site import Site, site_app
from ownstep.engines.federation.wire import JOIN
from ownstep.methods import METHODS
from ownstep.problems.linear.model import LinearModel

SERVERLESS = ("decentralised_gd", "gradient_tracking", "extra", "nids")
SERVED = [name for name in METHODS if name not in SERVERLESS]


class DirectGrid(Grid):
    """Nodes 101, 102, ... each run an app; ``silent(node, sent)`` says who does not answer the n-th message.

    With ``backwards`` the last to be asked is the first to answer. A site that is asked again who it is is not counted.
    """

    def __init__(self, apps, silent=lambda node, sent: False, backwards=False) -> None:
        self.backwards = backwards
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # Flower sets these in its processes
        self.apps = {101 + i: app for i, app in enumerate(apps)}
        self.contexts = {node: Context(1, node, {}, RecordDict(), {}) for node in self.apps}
        self.silent, self.replies, self.sent, self.kinds = silent, {}, dict.fromkeys(self.apps, 0), []

    def set_run(self, run):
        raise NotImplementedError

    run = create_message = send_and_receive = set_run

    def get_node_ids(self):
        return list(self.apps)

    def push_messages(self, messages):
        out = []
        for message in messages:
            node = message.metadata.dst_node_id
            identity = message.metadata.__dict__["_message_id"] = f"{node}-{len(self.kinds)}"
            self.kinds.append(message.metadata.message_type)
            if not self.silent(node, self.sent[node]):
                try:
                    message.content = _over_the_wire(message.content)
                    reply = self.apps[node](message, self.contexts[node])
                    if reply.has_content():
                        reply.content = _over_the_wire(reply.content)
                    self.replies[identity] = reply
                except Exception as error:
                    self.replies[identity] = Message(Error(2, str(error)), reply_to=message)
            self.sent[node] += message.metadata.message_type != JOIN or not self.sent[node]
            out.append(identity)
        return out

    def pull_messages(self, message_ids):
        order = list(message_ids)[:: -1 if self.backwards else 1]
        return [self.replies.pop(i) for i in order if i in self.replies]


def _over_the_wire(content: RecordDict) -> RecordDict:
    return recorddict_from_proto(recorddict_to_proto(content))


def sites_of(problem: LinearModel, **options) -> list[Site]:
    """One site a device of a problem, with that device's data alone."""
    return [Site(name, problem.only(i), **options) for i, name in enumerate(problem.names)]


def apps_of(problem: LinearModel, **options):
    return [site_app(lambda context, site=site: site) for site in sites_of(problem, **options)]
