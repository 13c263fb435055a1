"""Opens and seals ESP in tunnel mode: a JSON question on standard input, a JSON answer on standard output."""

import json
import sys

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.packet import raw

question = json.load(sys.stdin)
esn = question["esn"]
extended = {} if esn is None else {"esn_en": True, "esn": esn}
sa = SecurityAssociation(
    ESP,
    spi=question["spi"],
    crypt_algo=question["algorithm"],
    crypt_key=bytes.fromhex(question["key"]),
    tunnel_header=IP(src="192.0.2.1", dst="192.0.2.2"),
    **extended,
)


def opened(message):
    packet = IP(raw(IP(src="192.0.2.1", dst="192.0.2.2", proto=50) / bytes.fromhex(message)))
    return raw(sa.decrypt(packet, **extended)).hex()


def sealed(number, packet):
    packet = bytes.fromhex(packet)
    inner = IPv6(packet) if packet[0] >> 4 == 6 else IP(packet)
    message = sa.encrypt(inner, seq_num=number, iv=(number + (1 << 32)).to_bytes(8, "big"), **extended)
    return raw(message[IP].payload).hex()


json.dump(
    {
        "opened": [opened(message) for message in question["sealed"]],
        "sealed": [sealed(number, packet) for number, packet in enumerate(question["packets"], 1)],
    },
    sys.stdout,
)
