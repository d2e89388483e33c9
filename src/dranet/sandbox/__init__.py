"""A small cluster in one process tree, for demonstrations, for our tests and for people who write drivers.

From the ground up:

* `processes`, `node`: one machine with the real driver between a played kubelet and a played runtime.
* `apiserver`, `apirules`, `apihttp`, `faults`: an API server for the resource API, and trouble on the way to it.
* `sysfs_tree`: a machine shape as a `/sys` on disk.
* `fabric`, `cluster`: machines of a shape with their cards on a fabric.
* `controllers`, `scheduler`, `running`: from manifests to running pods and back.
* `observing`, `traffic`, `checks`: looking, measuring, judging.
* `stories`, `demo`: the recipes of `examples/`, played. `isolation`: namespaces that let nothing out.

It needs the right to make network namespaces: root, or a process started through `isolation.run_isolated`. The shortest
useful program:

    async with SandboxCluster([NodePlan("node-0", load_shape("a4-highgpu-8g"))], folder) as cluster:
        for pod in await controllers.apply(cluster.client, must_read(files)):
            placed = await Scheduler(cluster.client).schedule(pod)
            pod = await running.start(cluster.client, cluster.nodes[placed["spec"]["nodeName"]], placed)
            print(pod.name, pod.attach_ms, observing.pod_interfaces(pod))
"""
