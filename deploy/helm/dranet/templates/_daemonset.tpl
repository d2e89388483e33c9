{{- define "dranet.daemonset" }}
{{- $root := trimSuffix "/" .Values.kubeletRootDir }}
{{- $args := .Values.args }}
{{- if and .Values.metricsAuthorization (not .Values.metricsTLS.secretName) }}
{{- fail "metricsAuthorization needs metricsTLS.secretName: tokens must not cross the network in clear" }}
{{- end }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ include "dranet.instance" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "dranet.labels" . | nindent 4 }}
spec:
  selector:
    matchLabels:
      app: {{ include "dranet.instance" . }}
  updateStrategy:
    {{- toYaml .Values.updateStrategy | nindent 4 }}
  minReadySeconds: {{ .Values.minReadySeconds }}
  revisionHistoryLimit: {{ .Values.revisionHistoryLimit }}
  template:
    metadata:
      labels:
        {{- include "dranet.labels" . | nindent 8 }}
        {{- with .Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if or .Values.podAnnotations .Values.healthPolicy }}
      annotations:
        {{- with .Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with .Values.healthPolicy }}
        # The driver reads the policy at start, so a changed policy must recreate the pods.
        dra.net/health-policy: {{ sha256sum . }}
        {{- end }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "dranet.fullname" . }}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      # The NICs of the node are in the host network namespace.
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
      nodeSelector:
        {{- include "dranet.nodeSelector" . | fromYaml | toYaml | nindent 8 }}
      {{- with include "dranet.affinity" . | fromYaml }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if .Values.nri.enable }}
      initContainers:
        # Edits containerd's configuration and restarts it if NRI does not listen (docs/tasks/install.md#the-runtime).
        - name: enable-nri
          image: {{ include "dranet.image" . | quote }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args:
            - /dranet
            - enable-nri
            - --root=/host
            - --config={{ .Values.nri.containerdConfig }}
            - --socket={{ .Values.nriSocketDir }}/nri.sock
            - {{ printf "--restart=%s" .Values.nri.restartCommand | quote }}
          securityContext:
            privileged: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
              # To change into the node's root folder and run the restart command there.
              add: [SYS_CHROOT]
            appArmorProfile:
              type: Unconfined
          volumeMounts:
            - name: node-root
              mountPath: /host
              mountPropagation: HostToContainer
      {{- end }}
      containers:
        - name: dranet
          image: {{ include "dranet.image" . | quote }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          # The same order and number as in the reference's chart, because its users patch arguments by position.
          args:
            - /dranet
            - --v={{ .Values.logVerbosity }}
            {{- if hasKey $args "filter" }}
            - {{ printf "--filter=%s" $args.filter | quote }}
            {{- end }}
            - --hostname-override=$(NODE_NAME)
            {{- if ne $root "/var/lib/kubelet" }}
            - --kubelet-root-dir={{ $root }}
            {{- end }}
            {{- if ne .Values.nriSocketDir "/var/run/nri" }}
            - --nri-socket={{ .Values.nriSocketDir }}/nri.sock
            {{- end }}
            {{- if ne .Values.cdiDir "/var/run/cdi" }}
            - --cdi-dir={{ .Values.cdiDir }}
            {{- end }}
            {{- if eq .Values.bindAddress "node" }}
            - --bind-address=$(HOST_IP):{{ include "dranet.port" . }}
            {{- else if or .Values.bindAddress .Values.metricsPort }}
            - --bind-address={{ .Values.bindAddress }}:{{ include "dranet.port" . }}
            {{- end }}
            {{- if hasKey $args "dbPath" }}
            - --db-path={{ $args.dbPath }}
            {{- end }}
            {{- with $args.inventoryMinPollInterval }}
            - --inventory-min-poll-interval={{ . }}
            {{- end }}
            {{- with $args.inventoryMaxPollInterval }}
            - --inventory-max-poll-interval={{ . }}
            {{- end }}
            {{- with $args.inventoryPollBurst }}
            - --inventory-poll-burst={{ . }}
            {{- end }}
            {{- if hasKey $args "moveIBInterfaces" }}
            - --move-ib-interfaces={{ $args.moveIBInterfaces }}
            {{- end }}
            {{- with $args.railSource }}
            - {{ printf "--rail-source=%s" . | quote }}
            {{- end }}
            {{- with $args.uplinkInterfaces }}
            - {{ printf "--uplink-interfaces=%s" . | quote }}
            {{- end }}
            {{- with $args.offerInterfaces }}
            - {{ printf "--offer-interfaces=%s" . | quote }}
            {{- end }}
            {{- with $args.sharedCards }}
            - {{ printf "--shared-cards=%s" . | quote }}
            {{- end }}
            {{- with $args.sriovVfs }}
            - {{ printf "--sriov-vfs=%s" . | quote }}
            {{- end }}
            {{- if hasKey $args "rebindLostCards" }}
            - --rebind-lost-cards={{ $args.rebindLostCards }}
            {{- end }}
            {{- if $args.trustClaims }}
            - --trust-claims
            {{- end }}
            {{- with $args.cloudProviderHint }}
            - --cloud-provider-hint={{ . }}
            {{- end }}
            {{- range $provider, $options := $args.cloudProviderOptions }}
            {{- range $option, $value := $options }}
            - {{ printf "--cloud-provider-options=%s.%s=%v" $provider $option $value | quote }}
            {{- end }}
            {{- end }}
            {{- with $args.profileProvider }}
            - --profile-provider={{ . }}
            {{- end }}
            {{- with $args.webhookURL }}
            - {{ printf "--webhook-url=%s" . | quote }}
            {{- end }}
            {{- with $args.featureGates }}
            - --feature-gates={{ nospace . }}
            {{- end }}
            {{- if hasKey $args "enableDeviceMetadata" }}
            - --enable-device-metadata={{ $args.enableDeviceMetadata }}
            {{- end }}
            {{- if hasKey $args "liftMemlock" }}
            - --lift-memlock={{ $args.liftMemlock }}
            {{- end }}
            {{- with $args.taintEffect }}
            - --taint-effect={{ . }}
            {{- end }}
            {{- with $args.healthInterval }}
            - --health-interval={{ . }}
            {{- end }}
            {{- with $args.machineShape }}
            - {{ printf "--machine-shape=%s" . | quote }}
            {{- end }}
            {{- if .Values.healthPolicy }}
            - --health-policy=/etc/dranet/health.toml
            {{- end }}
            {{- if .Values.metricsTLS.secretName }}
            - --tls-cert-file=/etc/dranet-tls/tls.crt
            - --tls-private-key-file=/etc/dranet-tls/tls.key
            {{- end }}
            {{- if .Values.metricsAuthorization }}
            - --metrics-authorization
            {{- end }}
            {{- with $args.logFormat }}
            - --log-format={{ . }}
            {{- end }}
            {{- range .Values.extraArgs }}
            - {{ . | quote }}
            {{- end }}
          env:
            - name: NODE_NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
            {{- if eq .Values.bindAddress "node" }}
            - name: HOST_IP
              valueFrom:
                fieldRef:
                  fieldPath: status.hostIP
            {{- end }}
            # Each is a flag: --pod-uid, --proc-root, --sysfs, --reference-db.
            - name: DRANET_POD_UID
              valueFrom:
                fieldRef:
                  fieldPath: metadata.uid
            - name: DRANET_PROC_ROOT
              value: /host/proc
            {{- if include "dranet.writesSysfs" . }}
            - name: DRANET_SYSFS
              value: /host/sys
            {{- end }}
            {{- if .Values.takeOver }}
            - name: DRANET_REFERENCE_DB
              value: /host/run/dranet/dranet.db
            {{- end }}
            {{- with .Values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          # No containerPort: declaring one would keep the new pod of an update off the node while the old one runs.
          startupProbe:
            httpGet:
              path: {{ .Values.metricsPath }}
              port: {{ include "dranet.port" . }}
              {{- if .Values.metricsTLS.secretName }}
              scheme: HTTPS
              {{- end }}
              {{- with include "dranet.probeHost" . }}
              host: {{ . | quote }}
              {{- end }}
            periodSeconds: 2
            failureThreshold: 30
          livenessProbe:
            httpGet:
              path: {{ .Values.livenessPath }}
              port: {{ include "dranet.port" . }}
              {{- if .Values.metricsTLS.secretName }}
              scheme: HTTPS
              {{- end }}
              {{- with include "dranet.probeHost" . }}
              host: {{ . | quote }}
              {{- end }}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet:
              path: {{ .Values.readinessPath }}
              port: {{ include "dranet.port" . }}
              {{- if .Values.metricsTLS.secretName }}
              scheme: HTTPS
              {{- end }}
              {{- with include "dranet.probeHost" . }}
              host: {{ . | quote }}
              {{- end }}
            periodSeconds: 2
            timeoutSeconds: 2
            # During an update both drivers share the port, so the new one may answer "not ready" for the old one.
            failureThreshold: 3
          securityContext:
            {{- $security := deepCopy .Values.securityContext }}
            {{- if .Values.recoverHiddenDevices }}
            {{- $capabilities := $security.capabilities | default dict }}
            {{- $_ := set $capabilities "add" (append ($capabilities.add | default list) "SYS_PTRACE") }}
            {{- $_ := set $security "capabilities" $capabilities }}
            {{- end }}
            {{- toYaml $security | nindent 12 }}
          resources:
            {{- toYaml .Values.resources | nindent 12 }}
          volumeMounts:
            # The driver's gRPC socket, which the kubelet calls.
            - name: plugin
              mountPath: {{ $root }}/plugins/dra.net
            # Registration with the kubelet.
            - name: plugin-registry
              mountPath: {{ $root }}/plugins_registry
            # The runtime's NRI socket.
            - name: nri
              mountPath: {{ .Values.nriSocketDir }}
            # CDI specs, which the runtime reads: the readiness gate of each claim.
            - name: cdi
              mountPath: {{ .Values.cdiDir }}
            # The driver's store of claims and devices, kept over restarts.
            - name: dranet-run
              mountPath: /var/run/dranet
            {{- if .Values.takeOver }}
            # The reference driver's database, if it ran on this node.
            - name: reference-run
              mountPath: /host/run/dranet
              readOnly: true
            {{- end }}
            # Network namespaces of pods, which the runtime creates.
            - name: netns
              mountPath: /var/run/netns
              mountPropagation: HostToContainer
            {{- if .Values.recoverHiddenDevices }}
            # The node's processes: a pod may have hidden a NIC in a network namespace of one of them.
            - name: proc
              mountPath: /host/proc
              readOnly: true
            {{- end }}
            {{- if include "dranet.writesSysfs" . }}
            # To create virtual functions and to rebind PCI functions; a container's own /sys is read-only.
            - name: sys
              mountPath: /host/sys
            {{- end }}
            # Network sysctls of the writing thread's namespace; a container's own /proc/sys is read-only.
            - name: sysctls
              mountPath: /host/proc/sys/net
            # Numbers of the RDMA character devices that pods get.
            - name: infiniband
              mountPath: /dev/infiniband
              mountPropagation: HostToContainer
            # Pinned BPF links of NICs whose claim asks to remove them.
            - name: bpf
              mountPath: /sys/fs/bpf
              mountPropagation: HostToContainer
            {{- if .Values.healthPolicy }}
            # Severities and limits of faults.
            - name: health-policy
              mountPath: /etc/dranet
              readOnly: true
            {{- end }}
            {{- if .Values.metricsTLS.secretName }}
            # Certificate and key of the metrics port.
            - name: metrics-tls
              mountPath: /etc/dranet-tls
              readOnly: true
            {{- end }}
            - name: tmp
              mountPath: /tmp
            {{- with .Values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: plugin
          hostPath:
            path: {{ $root }}/plugins/dra.net
            type: DirectoryOrCreate
        - name: plugin-registry
          hostPath:
            path: {{ $root }}/plugins_registry
            type: DirectoryOrCreate
        - name: nri
          hostPath:
            path: {{ .Values.nriSocketDir }}
            type: DirectoryOrCreate
        - name: cdi
          hostPath:
            path: {{ .Values.cdiDir }}
            type: DirectoryOrCreate
        - name: dranet-run
          # On disk, because pods restart from these records after a reboot.
          hostPath:
            path: /var/lib/dranet
            type: DirectoryOrCreate
        {{- if .Values.takeOver }}
        - name: reference-run
          hostPath:
            path: /var/run/dranet
            type: DirectoryOrCreate
        {{- end }}
        - name: netns
          hostPath:
            path: /var/run/netns
            type: DirectoryOrCreate
        {{- if .Values.recoverHiddenDevices }}
        - name: proc
          hostPath:
            path: /proc
            type: Directory
        {{- end }}
        {{- if include "dranet.writesSysfs" . }}
        - name: sys
          hostPath:
            path: /sys
            type: Directory
        {{- end }}
        - name: sysctls
          hostPath:
            path: /proc/sys/net
            type: Directory
        - name: infiniband
          hostPath:
            path: /dev/infiniband
            type: DirectoryOrCreate
        - name: bpf
          hostPath:
            path: /sys/fs/bpf
        {{- if .Values.healthPolicy }}
        - name: health-policy
          configMap:
            name: {{ include "dranet.instance" . }}-health
        {{- end }}
        {{- with .Values.metricsTLS.secretName }}
        - name: metrics-tls
          secret:
            secretName: {{ . }}
        {{- end }}
        - name: tmp
          emptyDir:
            medium: Memory
            sizeLimit: 16Mi
        {{- if .Values.nri.enable }}
        - name: node-root
          hostPath:
            path: /
            type: Directory
        {{- end }}
        {{- with .Values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}
