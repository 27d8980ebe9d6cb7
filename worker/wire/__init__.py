"""The wire: how processes speak with each other. TCP, frames of msgpack, and a closed list of what may be said.

Three kinds of speaking go over one sort of connection. A controller and an api process *ask* a worker something and get
an answer. Anybody may *tell* something. And between two workers runs a *stream*: the packets of all links from the
domains of one to those of the other, each once and in order, over as many connections as it takes::

    controller ─ request ─►┐                       ┌► handler ─► answer
    api ──────── request ─►│ Connection ══ TCP ══► Accepted
    worker                 │                       │
      Outbound ─ frames ──►┘                       └► Inbound ─► packets in order ─► domains
         ▲──────────────────────── StreamAck ───────────┘

What holds here, and is tested with connections that are cut at random:

* Nothing that is received can do more than make an object of the list (``vocabulary.py``): there is no pickle, and each
  field's type is checked. Bytes that are anything else end the connection with an error that says why.
* Nobody who speaks waits for the network. What waits is counted; the dataflow decides what to do about it.
* Who asked knows how it ended: an answer, an error of the other side, or ``ConnectionLost``, which tells whether the
  request may have been done.

==================  ============================================================================================
``vocabulary.py``   which classes and errors may be sent, and ``PROTOCOL``, the digest that both sides compare
``codec.py``        objects to bytes and back: the only module that imports msgpack; expressions, updates and errors
``coders.py``       from a field's type to how it is packed and checked
``frames.py``       where one message ends and the next begins; the limits of size
``connection.py``   :class:`Connection` and :func:`connect`: requests, answers, notices, beats
``server.py``       :class:`WireServer` and :func:`serve`: the greeting, and who is refused
``streams.py``      :class:`OutboundStream` and :class:`Inbound`: a stream, without a socket
``peers.py``        :class:`Peers`: the streams to and from all other workers
``errors.py``       what can go wrong
==================  ============================================================================================
"""

from worker.protocol.messages import Hello, Role
from worker.wire.codec import decode, encode
from worker.wire.connection import Connection, Handler, connect
from worker.wire.errors import ConnectionLost, ProtocolError, RemoteFault, WrongDeployment
from worker.wire.peers import Peers
from worker.wire.server import Accepted, WireServer, serve
from worker.wire.streams import Inbound, LinkPacket, OutboundStream
from worker.wire.vocabulary import PROTOCOL


def greeting(deployment: str, role: Role, name: str, incarnation: int) -> Hello:
    """This process's greeting, for ``connect`` and ``Peers``."""
    return Hello(PROTOCOL, deployment, role, name, incarnation)


__all__ = [
    "PROTOCOL",
    "Accepted",
    "Connection",
    "ConnectionLost",
    "Handler",
    "Inbound",
    "LinkPacket",
    "OutboundStream",
    "Peers",
    "ProtocolError",
    "RemoteFault",
    "WireServer",
    "WrongDeployment",
    "connect",
    "decode",
    "encode",
    "greeting",
    "serve",
]
