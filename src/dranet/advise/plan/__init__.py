"""What kube-scheduler does with the pods of manifests on given hardware: nodes, devices, bandwidth, what stays free.

Other packages import from the modules: commands that only need `hardware` must not load the scheduler (0.2 s).
"""
