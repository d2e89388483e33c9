"""A small cluster in one process tree, for the demo, for our tests and for authors of other drivers.

* `processes`, `node`: one machine with the real driver, a fake kubelet and a fake runtime.
* `apiserver`, `apirules`, `apihttp`, `faults`: a fake API server for the resource API, and injected faults.
* `sysfs_tree`: a machine shape as a `/sys` on disk.
* `fabric`, `cluster`: machines of a shape, with their NICs on a network.
* `controllers`, `scheduler`, `running`: from manifests to running pods and back.
* `observing`, `traffic`, `checks`: read the state, measure, compare.
* `scenarios`, `demo`: run the recipes of `examples/`. `isolation`: namespaces of the demo. `waiting`: wait for events.

It needs permission to create network namespaces: run it as root, or through `isolation.run_isolated`. A short program:

    async with SandboxCluster([NodePlan("node-0", load_shape("a4-highgpu-8g"))], folder) as cluster:
        for pod in await controllers.apply(cluster.client, must_read(files)):
            placed = await Scheduler(cluster.client).schedule(pod)
            pod = await running.start(cluster.client, cluster.nodes[placed["spec"]["nodeName"]], placed)
            print(pod.name, pod.attach_ms, observing.pod_interfaces(pod))
"""
