"""ESP by scapy, as a second opinion: one JSON request a line on standard input, one JSON answer a line on standard output.

    {"do": "seal", SA..., "seq": 5, "packet": "45..."}   ->  {"esp": "00010201..."}
    {"do": "open", SA..., "esp": "00010201..."}          ->  {"packet": "45..."}

SA: "suite" (aes128gcm16, aes256gcm16, chacha20poly1305), "spi" (a number), "key" (cipher key and salt in hex), "esn" (the upper
half of the sequence number, null without extended sequence numbers). What cannot be opened is answered with {"error": "..."}.
"""

import json
import sys

from scapy.layers.inet import IP
from scapy.layers.ipsec import ESP, SecurityAssociation

CIPHERS = {
    "aes128gcm16": "AES-GCM",
    "aes256gcm16": "AES-GCM",
    "chacha20poly1305": "CHACHA20-POLY1305",
}
OUTER = {"src": "192.0.2.1", "dst": "192.0.2.2"}


def association(request):
    return SecurityAssociation(
        ESP,
        spi=request["spi"],
        crypt_algo=CIPHERS[request["suite"]],
        crypt_key=bytes.fromhex(request["key"]),
        tunnel_header=IP(**OUTER),
        esn_en=request["esn"] is not None,
        esn=request["esn"] or 0,
    )


def seal(request):
    packet = bytes.fromhex(request["packet"])
    if packet[0] >> 4 == 4:
        inner = IP(packet)
    else:
        from scapy.layers.inet6 import IPv6

        inner = IPv6(packet)
    sealed = association(request).encrypt(inner, seq_num=request["seq"])
    return {"esp": bytes(sealed[ESP]).hex()}


def unseal(request):
    outer = IP(**OUTER, proto=50) / ESP(bytes.fromhex(request["esp"]))
    return {"packet": bytes(association(request).decrypt(outer)).hex()}


def main():
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = seal(request) if request["do"] == "seal" else unseal(request)
        except Exception as error:  # whatever scapy says, the test is told
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
