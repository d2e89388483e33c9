#!/bin/sh
# The network devices of this container, for images without Python: `podinfo.py -o export` by a POSIX shell alone.
#
#     eval "$(sh podinfo.sh)" # DRANET_INTERFACES, DRANET_RDMA_DEVICES, ...
#
# Copy it into any image; an argument names another folder of the files. The script runs no program, so it has a
# small JSON reader. It reads one line at a time: a JSON string cannot contain a line end, and shells are slow with long
# strings. Everything from a file is quoted for the shell.
set -u
LC_ALL=C # files come in the order of their bytes, as Python sorts them
base=${1:-/var/run/kubernetes.io/dra-device-attributes}
cr=$(printf '\r')
devices=0 nics=0 interfaces='' addresses='' rdma='' ports='' index=''

quoted() { # 'value', with each ' in it as '\''
    left=$1 text=''
    while [ "$left" != "${left#*\'}" ]; do
        text="$text${left%%\'*}'\\''" left=${left#*\'}
    done
    printf "'%s'" "$text$left"
}

device() { # interface, addresses, RDMA device, its port, GID index
    devices=$((devices + 1))
    [ "$1$3" ] || return 0
    nics=$((nics + 1))
    interfaces=$interfaces${1:+${interfaces:+,}$1}
    addresses=$addresses${2:+${addresses:+,}$2}
    [ "$3" ] || return 0
    [ "$rdma" ] || index=$5
    [ "$index" = "$5" ] || index='' # for good: nothing but none is equal to it
    rdma=${rdma:+$rdma,}$3 ports=${ports:+$ports,}$3:$4
}

new_object() { version='' kind='' calls='' && new_device; }
new_device() { d_interface='' d_addresses='' d_rdma='' d_port=1 d_index=''; }

# Where the reader is: the names above it, each after a `>`; an element of a list and the whole object have none.
DEVICE='>>requests>>devices>'

value() { # the last word is the value of the last name
    case $at:$key in
    '>:apiVersion') version=$word ;;
    '>:kind') kind=$word ;;
    "$DEVICE>networkData:interfaceName") d_interface=$word ;;
    "$DEVICE>networkData>ips:") d_addresses=${d_addresses:+$d_addresses,}${word%%/*} ;;
    "$DEVICE>attributes>"*:*)
        name=${at##*>}
        case ${name##*/} in
        rdmaDevice) d_rdma=$word ;;
        rdmaPort) d_port=$word ;;
        gidIndex) d_index=$word ;;
        esac
        ;;
    esac
}

opened() { at="$at>$key" key='' word=''; }

closed() {
    value
    case $at in
    "$DEVICE")
        calls="$calls device $(quoted "$d_interface") $(quoted "$d_addresses") $(quoted "$d_rdma") $(quoted "$d_port")"
        calls="$calls $(quoted "$d_index");"
        new_device
        ;;
    '>')
        case $kind:$version in
        DeviceMetadata:metadata.resource.k8s.io/v1beta1 | DeviceMetadata:metadata.resource.k8s.io/v1alpha1) known=yes ;;
        *) new_object ;;
        esac
        ;;
    esac
    at=${at%>*} key='' word=''
}

string() { # the line begins after a quote; up to the next one
    word=''
    while :; do
        part=${line%%[\"\\]*}
        word=$word$part line=${line#"$part"}
        case $line in
        \"*) line=${line#?} && return ;;
        \\[\"\\/]*) line=${line#?} && word=$word${line%"${line#?}"} line=${line#?} ;;
        *) return 1 ;; # an escape that no name of a device needs, or the end of a file that is torn
        esac
    done
}

words() { # all of a line
    while [ "$line" ] && [ -z "$known" ]; do
        case $line in
        [{[]*) line=${line#?} && opened ;;
        []}]*) line=${line#?} && closed ;;
        :*) line=${line#?} key=$word word='' ;;
        ,*) line=${line#?} && value && key='' word='' ;;
        \"*) line=${line#?} && string || return 1 ;;
        [\ \	]* | "$cr"*) line=${line#?} ;;
        *)
            word=${line%%[],:\}\ \	"$cr"]*}
            line=${line#"$word"}
            [ "$word" != null ] || word=''
            ;;
        esac
    done
}

for file in "$base"/*/*/*/*-metadata.json; do
    [ -e "$file" ] || continue
    at='' key='' word='' known=''
    new_object
    while [ -z "$known" ] && { IFS= read -r line || [ "$line" ]; }; do
        words || break
    done <"$file"
    if [ "$known" ]; then
        eval "$calls"
    else
        printf 'pod-info: %s: no complete DeviceMetadata object of a known version without escapes\n' "$file" >&2
    fi
done

if [ "$devices" = 0 ]; then
    printf 'pod-info: no device metadata below %s; name the claim in resources.claims of the container\n' "$base" >&2
    exit 1
fi
printf 'export %s=%s\n' DRANET_CARDS "$nics" DRANET_INTERFACES "$(quoted "$interfaces")" \
    DRANET_ADDRESSES "$(quoted "$addresses")" DRANET_RDMA_DEVICES "$(quoted "$rdma")" \
    DRANET_RDMA_PORTS "$(quoted "$ports")"
[ -z "$index" ] || printf 'export DRANET_GID_INDEX=%s\n' "$(quoted "$index")"
