# Starts the engine of this pod: start.sh NODE:VARIABLE..., one for every rank of its group, in order.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"
readonly nodes=("$@")
readonly rank="${LWS_WORKER_INDEX:-0}"
readonly own="${nodes[$rank]}"
readonly first="${nodes[0]}"

# The interface that has this pod's address: collectives are bound to it by name.
readonly find_interface='import fcntl, ipaddress, socket, struct, sys

def addresses():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, 0x8915, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            yield name, answer[20:24]
    try:
        with open("/proc/net/if_inet6") as file:
            for digits, _, _, _, _, name in map(str.split, file):
                yield name, bytes.fromhex(digits)
    except OSError:
        return

wanted = ipaddress.ip_address(sys.argv[1]).packed
for name, address in addresses():
    if address == wanted:
        print(name)
        break
else:
    sys.exit(f"no network interface has the address {sys.argv[1]}")'
# The first node may come up later than this one: its name is asked for until it is known.
readonly find_address='import socket, sys, time
end_s = time.monotonic() + float(sys.argv[2])
while True:
    try:
        family = socket.AF_INET6 if ":" in sys.argv[3] else socket.AF_INET
        print(socket.getaddrinfo(sys.argv[1], None, family)[0][4][0])
        break
    except OSError as error:
        if time.monotonic() >= end_s:
            sys.exit(f"no address for {sys.argv[1]}: {error}")
        time.sleep(2)'

interface="$(python3 -c "$find_interface" "$POD_IP")"
export "ADDRESS_${own#*:}=$POD_IP" "INTERFACE_${own#*:}=$interface"
if ((rank > 0)); then
  address="$(python3 -c "$find_address" "$LWS_LEADER_ADDRESS" "$LEADER_TIMEOUT_S" "$POD_IP")"
  export "ADDRESS_${first#*:}=$address"
fi
exec bash "$here/nodes/${own%%:*}/serve.sh"
