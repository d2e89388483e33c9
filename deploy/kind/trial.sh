#!/bin/sh
# A cluster on this machine with the driver and two pods that have NICs: deploy/kind/trial.sh
# Needs Docker, kind with Kubernetes 1.34 or later, kubectl and helm. To remove it: kind delete cluster --name dranet
set -eu
cd "$(dirname "$0")/../.."
image=localhost/dranet:$(sed -n 's/^appVersion: "\(.*\)"/\1/p' deploy/helm/dranet/Chart.yaml)

kind create cluster --name dranet --config deploy/kind/kind.yaml
docker build --file deploy/image/Dockerfile --tag "$image" .
kind load docker-image "$image" --name dranet

# A dummy interface stands for a NIC: it moves between network namespaces like one.
for node in dranet-worker dranet-worker2; do
    docker exec "$node" sh -c 'ip link add nic0 type dummy && ip addr add 192.168.77.1/24 dev nic0 && ip link set nic0 up'
done

helm install dranet deploy/helm/dranet --namespace kube-system \
    --set image.pullPolicy=Never --set args.cloudProviderHint=NONE --wait
kubectl apply -f deploy/kind/pods.yaml
kubectl wait pod --selector app=trial --for condition=Ready --timeout 180s
for pod in first second; do
    kubectl exec "$pod" -- ip addr show net1
done
