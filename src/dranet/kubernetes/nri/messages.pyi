# Made by tools/compile_protos.py
from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper

DESCRIPTOR: _descriptor.FileDescriptor

class Event(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    UNKNOWN: _ClassVar[Event]
    RUN_POD_SANDBOX: _ClassVar[Event]
    STOP_POD_SANDBOX: _ClassVar[Event]
    REMOVE_POD_SANDBOX: _ClassVar[Event]
    CREATE_CONTAINER: _ClassVar[Event]
    POST_CREATE_CONTAINER: _ClassVar[Event]
    START_CONTAINER: _ClassVar[Event]
    POST_START_CONTAINER: _ClassVar[Event]
    UPDATE_CONTAINER: _ClassVar[Event]
    POST_UPDATE_CONTAINER: _ClassVar[Event]
    STOP_CONTAINER: _ClassVar[Event]
    REMOVE_CONTAINER: _ClassVar[Event]
    UPDATE_POD_SANDBOX: _ClassVar[Event]
    POST_UPDATE_POD_SANDBOX: _ClassVar[Event]
    VALIDATE_CONTAINER_ADJUSTMENT: _ClassVar[Event]
    LAST: _ClassVar[Event]

class ContainerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    CONTAINER_UNKNOWN: _ClassVar[ContainerState]
    CONTAINER_CREATED: _ClassVar[ContainerState]
    CONTAINER_PAUSED: _ClassVar[ContainerState]
    CONTAINER_RUNNING: _ClassVar[ContainerState]
    CONTAINER_STOPPED: _ClassVar[ContainerState]

class ProfileType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    RUNTIME_DEFAULT: _ClassVar[ProfileType]
    UNCONFINED: _ClassVar[ProfileType]
    LOCALHOST: _ClassVar[ProfileType]

class IOPrioClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    IOPRIO_CLASS_NONE: _ClassVar[IOPrioClass]
    IOPRIO_CLASS_RT: _ClassVar[IOPrioClass]
    IOPRIO_CLASS_BE: _ClassVar[IOPrioClass]
    IOPRIO_CLASS_IDLE: _ClassVar[IOPrioClass]

class LinuxSchedulerPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    SCHED_NONE: _ClassVar[LinuxSchedulerPolicy]
    SCHED_OTHER: _ClassVar[LinuxSchedulerPolicy]
    SCHED_FIFO: _ClassVar[LinuxSchedulerPolicy]
    SCHED_RR: _ClassVar[LinuxSchedulerPolicy]
    SCHED_BATCH: _ClassVar[LinuxSchedulerPolicy]
    SCHED_ISO: _ClassVar[LinuxSchedulerPolicy]
    SCHED_IDLE: _ClassVar[LinuxSchedulerPolicy]
    SCHED_DEADLINE: _ClassVar[LinuxSchedulerPolicy]

class LinuxSchedulerFlag(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    SCHED_FLAG_RESET_ON_FORK: _ClassVar[LinuxSchedulerFlag]
    SCHED_FLAG_RECLAIM: _ClassVar[LinuxSchedulerFlag]
    SCHED_FLAG_DL_OVERRUN: _ClassVar[LinuxSchedulerFlag]
    SCHED_FLAG_KEEP_POLICY: _ClassVar[LinuxSchedulerFlag]
    SCHED_FLAG_KEEP_PARAMS: _ClassVar[LinuxSchedulerFlag]
    SCHED_FLAG_UTIL_CLAMP_MIN: _ClassVar[LinuxSchedulerFlag]
    SCHED_FLAG_UTIL_CLAMP_MAX: _ClassVar[LinuxSchedulerFlag]

class MpolMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    MPOL_DEFAULT: _ClassVar[MpolMode]
    MPOL_PREFERRED: _ClassVar[MpolMode]
    MPOL_BIND: _ClassVar[MpolMode]
    MPOL_INTERLEAVE: _ClassVar[MpolMode]
    MPOL_LOCAL: _ClassVar[MpolMode]
    MPOL_PREFERRED_MANY: _ClassVar[MpolMode]
    MPOL_WEIGHTED_INTERLEAVE: _ClassVar[MpolMode]

class MpolFlag(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    MPOL_F_STATIC_NODES: _ClassVar[MpolFlag]
    MPOL_F_RELATIVE_NODES: _ClassVar[MpolFlag]
    MPOL_F_NUMA_BALANCING: _ClassVar[MpolFlag]

UNKNOWN: Event
RUN_POD_SANDBOX: Event
STOP_POD_SANDBOX: Event
REMOVE_POD_SANDBOX: Event
CREATE_CONTAINER: Event
POST_CREATE_CONTAINER: Event
START_CONTAINER: Event
POST_START_CONTAINER: Event
UPDATE_CONTAINER: Event
POST_UPDATE_CONTAINER: Event
STOP_CONTAINER: Event
REMOVE_CONTAINER: Event
UPDATE_POD_SANDBOX: Event
POST_UPDATE_POD_SANDBOX: Event
VALIDATE_CONTAINER_ADJUSTMENT: Event
LAST: Event
CONTAINER_UNKNOWN: ContainerState
CONTAINER_CREATED: ContainerState
CONTAINER_PAUSED: ContainerState
CONTAINER_RUNNING: ContainerState
CONTAINER_STOPPED: ContainerState
RUNTIME_DEFAULT: ProfileType
UNCONFINED: ProfileType
LOCALHOST: ProfileType
IOPRIO_CLASS_NONE: IOPrioClass
IOPRIO_CLASS_RT: IOPrioClass
IOPRIO_CLASS_BE: IOPrioClass
IOPRIO_CLASS_IDLE: IOPrioClass
SCHED_NONE: LinuxSchedulerPolicy
SCHED_OTHER: LinuxSchedulerPolicy
SCHED_FIFO: LinuxSchedulerPolicy
SCHED_RR: LinuxSchedulerPolicy
SCHED_BATCH: LinuxSchedulerPolicy
SCHED_ISO: LinuxSchedulerPolicy
SCHED_IDLE: LinuxSchedulerPolicy
SCHED_DEADLINE: LinuxSchedulerPolicy
SCHED_FLAG_RESET_ON_FORK: LinuxSchedulerFlag
SCHED_FLAG_RECLAIM: LinuxSchedulerFlag
SCHED_FLAG_DL_OVERRUN: LinuxSchedulerFlag
SCHED_FLAG_KEEP_POLICY: LinuxSchedulerFlag
SCHED_FLAG_KEEP_PARAMS: LinuxSchedulerFlag
SCHED_FLAG_UTIL_CLAMP_MIN: LinuxSchedulerFlag
SCHED_FLAG_UTIL_CLAMP_MAX: LinuxSchedulerFlag
MPOL_DEFAULT: MpolMode
MPOL_PREFERRED: MpolMode
MPOL_BIND: MpolMode
MPOL_INTERLEAVE: MpolMode
MPOL_LOCAL: MpolMode
MPOL_PREFERRED_MANY: MpolMode
MPOL_WEIGHTED_INTERLEAVE: MpolMode
MPOL_F_STATIC_NODES: MpolFlag
MPOL_F_RELATIVE_NODES: MpolFlag
MPOL_F_NUMA_BALANCING: MpolFlag

class RegisterPluginRequest(_message.Message):
    plugin_name: str
    plugin_idx: str
    NRI_version: str
    def __init__(
        self, plugin_name: str | None = ..., plugin_idx: str | None = ..., NRI_version: str | None = ...
    ) -> None: ...

class UpdateContainersRequest(_message.Message):
    update: _containers.RepeatedCompositeFieldContainer[ContainerUpdate]
    evict: _containers.RepeatedCompositeFieldContainer[ContainerEviction]
    def __init__(
        self,
        update: _Iterable[ContainerUpdate | _Mapping[str, object]] | None = ...,
        evict: _Iterable[ContainerEviction | _Mapping[str, object]] | None = ...,
    ) -> None: ...

class UpdateContainersResponse(_message.Message):
    failed: _containers.RepeatedCompositeFieldContainer[ContainerUpdate]
    def __init__(self, failed: _Iterable[ContainerUpdate | _Mapping[str, object]] | None = ...) -> None: ...

class ConfigureRequest(_message.Message):
    config: str
    runtime_name: str
    runtime_version: str
    registration_timeout: int
    request_timeout: int
    NRI_version: str
    def __init__(
        self,
        config: str | None = ...,
        runtime_name: str | None = ...,
        runtime_version: str | None = ...,
        registration_timeout: int | None = ...,
        request_timeout: int | None = ...,
        NRI_version: str | None = ...,
    ) -> None: ...

class ConfigureResponse(_message.Message):
    events: int
    def __init__(self, events: int | None = ...) -> None: ...

class SynchronizeRequest(_message.Message):
    pods: _containers.RepeatedCompositeFieldContainer[PodSandbox]
    containers: _containers.RepeatedCompositeFieldContainer[Container]
    more: bool
    def __init__(
        self,
        pods: _Iterable[PodSandbox | _Mapping[str, object]] | None = ...,
        containers: _Iterable[Container | _Mapping[str, object]] | None = ...,
        more: bool | None = ...,
    ) -> None: ...

class SynchronizeResponse(_message.Message):
    update: _containers.RepeatedCompositeFieldContainer[ContainerUpdate]
    more: bool
    def __init__(
        self, update: _Iterable[ContainerUpdate | _Mapping[str, object]] | None = ..., more: bool | None = ...
    ) -> None: ...

class RunPodSandboxRequest(_message.Message):
    pod: PodSandbox
    def __init__(self, pod: PodSandbox | _Mapping[str, object] | None = ...) -> None: ...

class RunPodSandboxResponse(_message.Message):
    def __init__(self) -> None: ...

class UpdatePodSandboxRequest(_message.Message):
    pod: PodSandbox
    overhead_linux_resources: LinuxResources
    linux_resources: LinuxResources
    def __init__(
        self,
        pod: PodSandbox | _Mapping[str, object] | None = ...,
        overhead_linux_resources: LinuxResources | _Mapping[str, object] | None = ...,
        linux_resources: LinuxResources | _Mapping[str, object] | None = ...,
    ) -> None: ...

class UpdatePodSandboxResponse(_message.Message):
    def __init__(self) -> None: ...

class PostUpdatePodSandboxRequest(_message.Message):
    pod: PodSandbox
    def __init__(self, pod: PodSandbox | _Mapping[str, object] | None = ...) -> None: ...

class PostUpdatePodSandboxResponse(_message.Message):
    def __init__(self) -> None: ...

class StopPodSandboxRequest(_message.Message):
    pod: PodSandbox
    def __init__(self, pod: PodSandbox | _Mapping[str, object] | None = ...) -> None: ...

class StopPodSandboxResponse(_message.Message):
    def __init__(self) -> None: ...

class RemovePodSandboxRequest(_message.Message):
    pod: PodSandbox
    def __init__(self, pod: PodSandbox | _Mapping[str, object] | None = ...) -> None: ...

class RemovePodSandboxResponse(_message.Message):
    def __init__(self) -> None: ...

class CreateContainerRequest(_message.Message):
    pod: PodSandbox
    container: Container
    def __init__(
        self,
        pod: PodSandbox | _Mapping[str, object] | None = ...,
        container: Container | _Mapping[str, object] | None = ...,
    ) -> None: ...

class CreateContainerResponse(_message.Message):
    adjust: ContainerAdjustment
    update: _containers.RepeatedCompositeFieldContainer[ContainerUpdate]
    evict: _containers.RepeatedCompositeFieldContainer[ContainerEviction]
    def __init__(
        self,
        adjust: ContainerAdjustment | _Mapping[str, object] | None = ...,
        update: _Iterable[ContainerUpdate | _Mapping[str, object]] | None = ...,
        evict: _Iterable[ContainerEviction | _Mapping[str, object]] | None = ...,
    ) -> None: ...

class PostCreateContainerRequest(_message.Message):
    pod: PodSandbox
    container: Container
    def __init__(
        self,
        pod: PodSandbox | _Mapping[str, object] | None = ...,
        container: Container | _Mapping[str, object] | None = ...,
    ) -> None: ...

class PostCreateContainerResponse(_message.Message):
    def __init__(self) -> None: ...

class StartContainerRequest(_message.Message):
    pod: PodSandbox
    container: Container
    def __init__(
        self,
        pod: PodSandbox | _Mapping[str, object] | None = ...,
        container: Container | _Mapping[str, object] | None = ...,
    ) -> None: ...

class StartContainerResponse(_message.Message):
    def __init__(self) -> None: ...

class PostStartContainerRequest(_message.Message):
    pod: PodSandbox
    container: Container
    def __init__(
        self,
        pod: PodSandbox | _Mapping[str, object] | None = ...,
        container: Container | _Mapping[str, object] | None = ...,
    ) -> None: ...

class PostStartContainerResponse(_message.Message):
    def __init__(self) -> None: ...

class UpdateContainerRequest(_message.Message):
    pod: PodSandbox
    container: Container
    linux_resources: LinuxResources
    def __init__(
        self,
        pod: PodSandbox | _Mapping[str, object] | None = ...,
        container: Container | _Mapping[str, object] | None = ...,
        linux_resources: LinuxResources | _Mapping[str, object] | None = ...,
    ) -> None: ...

class UpdateContainerResponse(_message.Message):
    update: _containers.RepeatedCompositeFieldContainer[ContainerUpdate]
    evict: _containers.RepeatedCompositeFieldContainer[ContainerEviction]
    def __init__(
        self,
        update: _Iterable[ContainerUpdate | _Mapping[str, object]] | None = ...,
        evict: _Iterable[ContainerEviction | _Mapping[str, object]] | None = ...,
    ) -> None: ...

class PostUpdateContainerRequest(_message.Message):
    pod: PodSandbox
    container: Container
    def __init__(
        self,
        pod: PodSandbox | _Mapping[str, object] | None = ...,
        container: Container | _Mapping[str, object] | None = ...,
    ) -> None: ...

class PostUpdateContainerResponse(_message.Message):
    def __init__(self) -> None: ...

class StopContainerRequest(_message.Message):
    pod: PodSandbox
    container: Container
    def __init__(
        self,
        pod: PodSandbox | _Mapping[str, object] | None = ...,
        container: Container | _Mapping[str, object] | None = ...,
    ) -> None: ...

class StopContainerResponse(_message.Message):
    update: _containers.RepeatedCompositeFieldContainer[ContainerUpdate]
    def __init__(self, update: _Iterable[ContainerUpdate | _Mapping[str, object]] | None = ...) -> None: ...

class RemoveContainerRequest(_message.Message):
    pod: PodSandbox
    container: Container
    def __init__(
        self,
        pod: PodSandbox | _Mapping[str, object] | None = ...,
        container: Container | _Mapping[str, object] | None = ...,
    ) -> None: ...

class RemoveContainerResponse(_message.Message):
    def __init__(self) -> None: ...

class StateChangeEvent(_message.Message):
    event: Event
    pod: PodSandbox
    container: Container
    def __init__(
        self,
        event: Event | str | None = ...,
        pod: PodSandbox | _Mapping[str, object] | None = ...,
        container: Container | _Mapping[str, object] | None = ...,
    ) -> None: ...

class ValidateContainerAdjustmentRequest(_message.Message):
    pod: PodSandbox
    container: Container
    adjust: ContainerAdjustment
    update: _containers.RepeatedCompositeFieldContainer[ContainerUpdate]
    owners: OwningPlugins
    plugins: _containers.RepeatedCompositeFieldContainer[PluginInstance]
    def __init__(
        self,
        pod: PodSandbox | _Mapping[str, object] | None = ...,
        container: Container | _Mapping[str, object] | None = ...,
        adjust: ContainerAdjustment | _Mapping[str, object] | None = ...,
        update: _Iterable[ContainerUpdate | _Mapping[str, object]] | None = ...,
        owners: OwningPlugins | _Mapping[str, object] | None = ...,
        plugins: _Iterable[PluginInstance | _Mapping[str, object]] | None = ...,
    ) -> None: ...

class PluginInstance(_message.Message):
    name: str
    index: str
    def __init__(self, name: str | None = ..., index: str | None = ...) -> None: ...

class ValidateContainerAdjustmentResponse(_message.Message):
    reject: bool
    reason: str
    def __init__(self, reject: bool | None = ..., reason: str | None = ...) -> None: ...

class Empty(_message.Message):
    def __init__(self) -> None: ...

class PodSandbox(_message.Message):
    class LabelsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: str | None = ..., value: str | None = ...) -> None: ...

    class AnnotationsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: str | None = ..., value: str | None = ...) -> None: ...

    id: str
    name: str
    uid: str
    namespace: str
    labels: _containers.ScalarMap[str, str]
    annotations: _containers.ScalarMap[str, str]
    runtime_handler: str
    linux: LinuxPodSandbox
    pid: int
    ips: _containers.RepeatedScalarFieldContainer[str]
    def __init__(
        self,
        id: str | None = ...,
        name: str | None = ...,
        uid: str | None = ...,
        namespace: str | None = ...,
        labels: _Mapping[str, str] | None = ...,
        annotations: _Mapping[str, str] | None = ...,
        runtime_handler: str | None = ...,
        linux: LinuxPodSandbox | _Mapping[str, object] | None = ...,
        pid: int | None = ...,
        ips: _Iterable[str] | None = ...,
    ) -> None: ...

class LinuxPodSandbox(_message.Message):
    pod_overhead: LinuxResources
    pod_resources: LinuxResources
    cgroup_parent: str
    cgroups_path: str
    namespaces: _containers.RepeatedCompositeFieldContainer[LinuxNamespace]
    resources: LinuxResources
    def __init__(
        self,
        pod_overhead: LinuxResources | _Mapping[str, object] | None = ...,
        pod_resources: LinuxResources | _Mapping[str, object] | None = ...,
        cgroup_parent: str | None = ...,
        cgroups_path: str | None = ...,
        namespaces: _Iterable[LinuxNamespace | _Mapping[str, object]] | None = ...,
        resources: LinuxResources | _Mapping[str, object] | None = ...,
    ) -> None: ...

class Container(_message.Message):
    class LabelsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: str | None = ..., value: str | None = ...) -> None: ...

    class AnnotationsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: str | None = ..., value: str | None = ...) -> None: ...

    id: str
    pod_sandbox_id: str
    name: str
    state: ContainerState
    labels: _containers.ScalarMap[str, str]
    annotations: _containers.ScalarMap[str, str]
    args: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.RepeatedScalarFieldContainer[str]
    mounts: _containers.RepeatedCompositeFieldContainer[Mount]
    hooks: Hooks
    linux: LinuxContainer
    pid: int
    rlimits: _containers.RepeatedCompositeFieldContainer[POSIXRlimit]
    created_at: int
    started_at: int
    finished_at: int
    exit_code: int
    status_reason: str
    status_message: str
    CDI_devices: _containers.RepeatedCompositeFieldContainer[CDIDevice]
    user: User
    image: Image
    def __init__(
        self,
        id: str | None = ...,
        pod_sandbox_id: str | None = ...,
        name: str | None = ...,
        state: ContainerState | str | None = ...,
        labels: _Mapping[str, str] | None = ...,
        annotations: _Mapping[str, str] | None = ...,
        args: _Iterable[str] | None = ...,
        env: _Iterable[str] | None = ...,
        mounts: _Iterable[Mount | _Mapping[str, object]] | None = ...,
        hooks: Hooks | _Mapping[str, object] | None = ...,
        linux: LinuxContainer | _Mapping[str, object] | None = ...,
        pid: int | None = ...,
        rlimits: _Iterable[POSIXRlimit | _Mapping[str, object]] | None = ...,
        created_at: int | None = ...,
        started_at: int | None = ...,
        finished_at: int | None = ...,
        exit_code: int | None = ...,
        status_reason: str | None = ...,
        status_message: str | None = ...,
        CDI_devices: _Iterable[CDIDevice | _Mapping[str, object]] | None = ...,
        user: User | _Mapping[str, object] | None = ...,
        image: Image | _Mapping[str, object] | None = ...,
    ) -> None: ...

class Image(_message.Message):
    name: str
    digest: str
    config_digest: str
    def __init__(self, name: str | None = ..., digest: str | None = ..., config_digest: str | None = ...) -> None: ...

class Mount(_message.Message):
    destination: str
    type: str
    source: str
    options: _containers.RepeatedScalarFieldContainer[str]
    def __init__(
        self,
        destination: str | None = ...,
        type: str | None = ...,
        source: str | None = ...,
        options: _Iterable[str] | None = ...,
    ) -> None: ...

class Hooks(_message.Message):
    prestart: _containers.RepeatedCompositeFieldContainer[Hook]
    create_runtime: _containers.RepeatedCompositeFieldContainer[Hook]
    create_container: _containers.RepeatedCompositeFieldContainer[Hook]
    start_container: _containers.RepeatedCompositeFieldContainer[Hook]
    poststart: _containers.RepeatedCompositeFieldContainer[Hook]
    poststop: _containers.RepeatedCompositeFieldContainer[Hook]
    def __init__(
        self,
        prestart: _Iterable[Hook | _Mapping[str, object]] | None = ...,
        create_runtime: _Iterable[Hook | _Mapping[str, object]] | None = ...,
        create_container: _Iterable[Hook | _Mapping[str, object]] | None = ...,
        start_container: _Iterable[Hook | _Mapping[str, object]] | None = ...,
        poststart: _Iterable[Hook | _Mapping[str, object]] | None = ...,
        poststop: _Iterable[Hook | _Mapping[str, object]] | None = ...,
    ) -> None: ...

class Hook(_message.Message):
    path: str
    args: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.RepeatedScalarFieldContainer[str]
    timeout: OptionalInt
    def __init__(
        self,
        path: str | None = ...,
        args: _Iterable[str] | None = ...,
        env: _Iterable[str] | None = ...,
        timeout: OptionalInt | _Mapping[str, object] | None = ...,
    ) -> None: ...

class LinuxContainer(_message.Message):
    class SysctlEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: str | None = ..., value: str | None = ...) -> None: ...

    class NetDevicesEntry(_message.Message):
        key: str
        value: LinuxNetDevice
        def __init__(
            self, key: str | None = ..., value: LinuxNetDevice | _Mapping[str, object] | None = ...
        ) -> None: ...

    namespaces: _containers.RepeatedCompositeFieldContainer[LinuxNamespace]
    devices: _containers.RepeatedCompositeFieldContainer[LinuxDevice]
    resources: LinuxResources
    oom_score_adj: OptionalInt
    cgroups_path: str
    io_priority: LinuxIOPriority
    seccomp_profile: SecurityProfile
    seccomp_policy: LinuxSeccomp
    sysctl: _containers.ScalarMap[str, str]
    net_devices: _containers.MessageMap[str, LinuxNetDevice]
    scheduler: LinuxScheduler
    rdt: LinuxRdt
    def __init__(
        self,
        namespaces: _Iterable[LinuxNamespace | _Mapping[str, object]] | None = ...,
        devices: _Iterable[LinuxDevice | _Mapping[str, object]] | None = ...,
        resources: LinuxResources | _Mapping[str, object] | None = ...,
        oom_score_adj: OptionalInt | _Mapping[str, object] | None = ...,
        cgroups_path: str | None = ...,
        io_priority: LinuxIOPriority | _Mapping[str, object] | None = ...,
        seccomp_profile: SecurityProfile | _Mapping[str, object] | None = ...,
        seccomp_policy: LinuxSeccomp | _Mapping[str, object] | None = ...,
        sysctl: _Mapping[str, str] | None = ...,
        net_devices: _Mapping[str, LinuxNetDevice] | None = ...,
        scheduler: LinuxScheduler | _Mapping[str, object] | None = ...,
        rdt: LinuxRdt | _Mapping[str, object] | None = ...,
    ) -> None: ...

class LinuxNamespace(_message.Message):
    type: str
    path: str
    def __init__(self, type: str | None = ..., path: str | None = ...) -> None: ...

class LinuxDevice(_message.Message):
    path: str
    type: str
    major: int
    minor: int
    file_mode: OptionalFileMode
    uid: OptionalUInt32
    gid: OptionalUInt32
    def __init__(
        self,
        path: str | None = ...,
        type: str | None = ...,
        major: int | None = ...,
        minor: int | None = ...,
        file_mode: OptionalFileMode | _Mapping[str, object] | None = ...,
        uid: OptionalUInt32 | _Mapping[str, object] | None = ...,
        gid: OptionalUInt32 | _Mapping[str, object] | None = ...,
    ) -> None: ...

class LinuxDeviceCgroup(_message.Message):
    allow: bool
    type: str
    major: OptionalInt64
    minor: OptionalInt64
    access: str
    def __init__(
        self,
        allow: bool | None = ...,
        type: str | None = ...,
        major: OptionalInt64 | _Mapping[str, object] | None = ...,
        minor: OptionalInt64 | _Mapping[str, object] | None = ...,
        access: str | None = ...,
    ) -> None: ...

class CDIDevice(_message.Message):
    name: str
    def __init__(self, name: str | None = ...) -> None: ...

class User(_message.Message):
    uid: int
    gid: int
    additional_gids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(
        self, uid: int | None = ..., gid: int | None = ..., additional_gids: _Iterable[int] | None = ...
    ) -> None: ...

class LinuxResources(_message.Message):
    class UnifiedEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: str | None = ..., value: str | None = ...) -> None: ...

    memory: LinuxMemory
    cpu: LinuxCPU
    hugepage_limits: _containers.RepeatedCompositeFieldContainer[HugepageLimit]
    blockio_class: OptionalString
    rdt_class: OptionalString
    unified: _containers.ScalarMap[str, str]
    devices: _containers.RepeatedCompositeFieldContainer[LinuxDeviceCgroup]
    pids: LinuxPids
    def __init__(
        self,
        memory: LinuxMemory | _Mapping[str, object] | None = ...,
        cpu: LinuxCPU | _Mapping[str, object] | None = ...,
        hugepage_limits: _Iterable[HugepageLimit | _Mapping[str, object]] | None = ...,
        blockio_class: OptionalString | _Mapping[str, object] | None = ...,
        rdt_class: OptionalString | _Mapping[str, object] | None = ...,
        unified: _Mapping[str, str] | None = ...,
        devices: _Iterable[LinuxDeviceCgroup | _Mapping[str, object]] | None = ...,
        pids: LinuxPids | _Mapping[str, object] | None = ...,
    ) -> None: ...

class LinuxMemory(_message.Message):
    limit: OptionalInt64
    reservation: OptionalInt64
    swap: OptionalInt64
    kernel: OptionalInt64
    kernel_tcp: OptionalInt64
    swappiness: OptionalUInt64
    disable_oom_killer: OptionalBool
    use_hierarchy: OptionalBool
    def __init__(
        self,
        limit: OptionalInt64 | _Mapping[str, object] | None = ...,
        reservation: OptionalInt64 | _Mapping[str, object] | None = ...,
        swap: OptionalInt64 | _Mapping[str, object] | None = ...,
        kernel: OptionalInt64 | _Mapping[str, object] | None = ...,
        kernel_tcp: OptionalInt64 | _Mapping[str, object] | None = ...,
        swappiness: OptionalUInt64 | _Mapping[str, object] | None = ...,
        disable_oom_killer: OptionalBool | _Mapping[str, object] | None = ...,
        use_hierarchy: OptionalBool | _Mapping[str, object] | None = ...,
    ) -> None: ...

class LinuxCPU(_message.Message):
    shares: OptionalUInt64
    quota: OptionalInt64
    period: OptionalUInt64
    realtime_runtime: OptionalInt64
    realtime_period: OptionalUInt64
    cpus: str
    mems: str
    def __init__(
        self,
        shares: OptionalUInt64 | _Mapping[str, object] | None = ...,
        quota: OptionalInt64 | _Mapping[str, object] | None = ...,
        period: OptionalUInt64 | _Mapping[str, object] | None = ...,
        realtime_runtime: OptionalInt64 | _Mapping[str, object] | None = ...,
        realtime_period: OptionalUInt64 | _Mapping[str, object] | None = ...,
        cpus: str | None = ...,
        mems: str | None = ...,
    ) -> None: ...

class HugepageLimit(_message.Message):
    page_size: str
    limit: int
    def __init__(self, page_size: str | None = ..., limit: int | None = ...) -> None: ...

class SecurityProfile(_message.Message):
    profile_type: ProfileType
    localhost_ref: str
    def __init__(self, profile_type: ProfileType | str | None = ..., localhost_ref: str | None = ...) -> None: ...

class POSIXRlimit(_message.Message):
    type: str
    hard: int
    soft: int
    def __init__(self, type: str | None = ..., hard: int | None = ..., soft: int | None = ...) -> None: ...

class LinuxPids(_message.Message):
    limit: int
    def __init__(self, limit: int | None = ...) -> None: ...

class LinuxIOPriority(_message.Message):
    priority: int
    def __init__(self, priority: int | None = ..., **kwargs: object) -> None: ...

class LinuxNetDevice(_message.Message):
    name: str
    def __init__(self, name: str | None = ...) -> None: ...

class LinuxScheduler(_message.Message):
    policy: LinuxSchedulerPolicy
    nice: int
    priority: int
    flags: _containers.RepeatedScalarFieldContainer[LinuxSchedulerFlag]
    runtime: int
    deadline: int
    period: int
    def __init__(
        self,
        policy: LinuxSchedulerPolicy | str | None = ...,
        nice: int | None = ...,
        priority: int | None = ...,
        flags: _Iterable[LinuxSchedulerFlag | str] | None = ...,
        runtime: int | None = ...,
        deadline: int | None = ...,
        period: int | None = ...,
    ) -> None: ...

class ContainerAdjustment(_message.Message):
    class AnnotationsEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: str | None = ..., value: str | None = ...) -> None: ...

    annotations: _containers.ScalarMap[str, str]
    mounts: _containers.RepeatedCompositeFieldContainer[Mount]
    env: _containers.RepeatedCompositeFieldContainer[KeyValue]
    hooks: Hooks
    linux: LinuxContainerAdjustment
    rlimits: _containers.RepeatedCompositeFieldContainer[POSIXRlimit]
    CDI_devices: _containers.RepeatedCompositeFieldContainer[CDIDevice]
    args: _containers.RepeatedScalarFieldContainer[str]
    def __init__(
        self,
        annotations: _Mapping[str, str] | None = ...,
        mounts: _Iterable[Mount | _Mapping[str, object]] | None = ...,
        env: _Iterable[KeyValue | _Mapping[str, object]] | None = ...,
        hooks: Hooks | _Mapping[str, object] | None = ...,
        linux: LinuxContainerAdjustment | _Mapping[str, object] | None = ...,
        rlimits: _Iterable[POSIXRlimit | _Mapping[str, object]] | None = ...,
        CDI_devices: _Iterable[CDIDevice | _Mapping[str, object]] | None = ...,
        args: _Iterable[str] | None = ...,
    ) -> None: ...

class LinuxContainerAdjustment(_message.Message):
    class SysctlEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: str | None = ..., value: str | None = ...) -> None: ...

    class NetDevicesEntry(_message.Message):
        key: str
        value: LinuxNetDevice
        def __init__(
            self, key: str | None = ..., value: LinuxNetDevice | _Mapping[str, object] | None = ...
        ) -> None: ...

    devices: _containers.RepeatedCompositeFieldContainer[LinuxDevice]
    resources: LinuxResources
    cgroups_path: str
    oom_score_adj: OptionalInt
    io_priority: LinuxIOPriority
    seccomp_policy: LinuxSeccomp
    namespaces: _containers.RepeatedCompositeFieldContainer[LinuxNamespace]
    sysctl: _containers.ScalarMap[str, str]
    net_devices: _containers.MessageMap[str, LinuxNetDevice]
    scheduler: LinuxScheduler
    rdt: LinuxRdt
    memory_policy: LinuxMemoryPolicy
    def __init__(
        self,
        devices: _Iterable[LinuxDevice | _Mapping[str, object]] | None = ...,
        resources: LinuxResources | _Mapping[str, object] | None = ...,
        cgroups_path: str | None = ...,
        oom_score_adj: OptionalInt | _Mapping[str, object] | None = ...,
        io_priority: LinuxIOPriority | _Mapping[str, object] | None = ...,
        seccomp_policy: LinuxSeccomp | _Mapping[str, object] | None = ...,
        namespaces: _Iterable[LinuxNamespace | _Mapping[str, object]] | None = ...,
        sysctl: _Mapping[str, str] | None = ...,
        net_devices: _Mapping[str, LinuxNetDevice] | None = ...,
        scheduler: LinuxScheduler | _Mapping[str, object] | None = ...,
        rdt: LinuxRdt | _Mapping[str, object] | None = ...,
        memory_policy: LinuxMemoryPolicy | _Mapping[str, object] | None = ...,
    ) -> None: ...

class LinuxSeccomp(_message.Message):
    default_action: str
    default_errno: OptionalUInt32
    architectures: _containers.RepeatedScalarFieldContainer[str]
    flags: _containers.RepeatedScalarFieldContainer[str]
    listener_path: str
    listener_metadata: str
    syscalls: _containers.RepeatedCompositeFieldContainer[LinuxSyscall]
    def __init__(
        self,
        default_action: str | None = ...,
        default_errno: OptionalUInt32 | _Mapping[str, object] | None = ...,
        architectures: _Iterable[str] | None = ...,
        flags: _Iterable[str] | None = ...,
        listener_path: str | None = ...,
        listener_metadata: str | None = ...,
        syscalls: _Iterable[LinuxSyscall | _Mapping[str, object]] | None = ...,
    ) -> None: ...

class LinuxSyscall(_message.Message):
    names: _containers.RepeatedScalarFieldContainer[str]
    action: str
    errno_ret: OptionalUInt32
    args: _containers.RepeatedCompositeFieldContainer[LinuxSeccompArg]
    def __init__(
        self,
        names: _Iterable[str] | None = ...,
        action: str | None = ...,
        errno_ret: OptionalUInt32 | _Mapping[str, object] | None = ...,
        args: _Iterable[LinuxSeccompArg | _Mapping[str, object]] | None = ...,
    ) -> None: ...

class LinuxSeccompArg(_message.Message):
    index: int
    value: int
    value_two: int
    op: str
    def __init__(
        self, index: int | None = ..., value: int | None = ..., value_two: int | None = ..., op: str | None = ...
    ) -> None: ...

class LinuxMemoryPolicy(_message.Message):
    mode: MpolMode
    nodes: str
    flags: _containers.RepeatedScalarFieldContainer[MpolFlag]
    def __init__(
        self, mode: MpolMode | str | None = ..., nodes: str | None = ..., flags: _Iterable[MpolFlag | str] | None = ...
    ) -> None: ...

class ContainerUpdate(_message.Message):
    container_id: str
    linux: LinuxContainerUpdate
    ignore_failure: bool
    def __init__(
        self,
        container_id: str | None = ...,
        linux: LinuxContainerUpdate | _Mapping[str, object] | None = ...,
        ignore_failure: bool | None = ...,
    ) -> None: ...

class LinuxContainerUpdate(_message.Message):
    resources: LinuxResources
    def __init__(self, resources: LinuxResources | _Mapping[str, object] | None = ...) -> None: ...

class ContainerEviction(_message.Message):
    container_id: str
    reason: str
    def __init__(self, container_id: str | None = ..., reason: str | None = ...) -> None: ...

class LinuxRdt(_message.Message):
    clos_id: OptionalString
    schemata: OptionalRepeatedString
    enable_monitoring: OptionalBool
    remove: bool
    def __init__(
        self,
        clos_id: OptionalString | _Mapping[str, object] | None = ...,
        schemata: OptionalRepeatedString | _Mapping[str, object] | None = ...,
        enable_monitoring: OptionalBool | _Mapping[str, object] | None = ...,
        remove: bool | None = ...,
    ) -> None: ...

class KeyValue(_message.Message):
    key: str
    value: str
    def __init__(self, key: str | None = ..., value: str | None = ...) -> None: ...

class OptionalString(_message.Message):
    value: str
    def __init__(self, value: str | None = ...) -> None: ...

class OptionalRepeatedString(_message.Message):
    value: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, value: _Iterable[str] | None = ...) -> None: ...

class OptionalInt(_message.Message):
    value: int
    def __init__(self, value: int | None = ...) -> None: ...

class OptionalInt32(_message.Message):
    value: int
    def __init__(self, value: int | None = ...) -> None: ...

class OptionalUInt32(_message.Message):
    value: int
    def __init__(self, value: int | None = ...) -> None: ...

class OptionalInt64(_message.Message):
    value: int
    def __init__(self, value: int | None = ...) -> None: ...

class OptionalUInt64(_message.Message):
    value: int
    def __init__(self, value: int | None = ...) -> None: ...

class OptionalBool(_message.Message):
    value: bool
    def __init__(self, value: bool | None = ...) -> None: ...

class OptionalFileMode(_message.Message):
    value: int
    def __init__(self, value: int | None = ...) -> None: ...

class CompoundFieldOwners(_message.Message):
    class OwnersEntry(_message.Message):
        key: str
        value: str
        def __init__(self, key: str | None = ..., value: str | None = ...) -> None: ...

    owners: _containers.ScalarMap[str, str]
    def __init__(self, owners: _Mapping[str, str] | None = ...) -> None: ...

class FieldOwners(_message.Message):
    class SimpleEntry(_message.Message):
        key: int
        value: str
        def __init__(self, key: int | None = ..., value: str | None = ...) -> None: ...

    class CompoundEntry(_message.Message):
        key: int
        value: CompoundFieldOwners
        def __init__(
            self, key: int | None = ..., value: CompoundFieldOwners | _Mapping[str, object] | None = ...
        ) -> None: ...

    simple: _containers.ScalarMap[int, str]
    compound: _containers.MessageMap[int, CompoundFieldOwners]
    def __init__(
        self, simple: _Mapping[int, str] | None = ..., compound: _Mapping[int, CompoundFieldOwners] | None = ...
    ) -> None: ...

class OwningPlugins(_message.Message):
    class OwnersEntry(_message.Message):
        key: str
        value: FieldOwners
        def __init__(self, key: str | None = ..., value: FieldOwners | _Mapping[str, object] | None = ...) -> None: ...

    owners: _containers.MessageMap[str, FieldOwners]
    def __init__(self, owners: _Mapping[str, FieldOwners] | None = ...) -> None: ...
