"""What values change in the Deployments: image, placement, resources, arguments, certificates, ports."""

from __future__ import annotations

from typing import Final

from tests.chart.edits import Edit, followed, wrapped


def workload(name: str, cpu: str) -> tuple[Edit, ...]:
    """What all three Deployments have in common; `name` is that of the container, and of its values."""
    values = f"$.Values.{name}"
    return (
        Edit("image: device-taint-webhook\n", 'image: {{ include "device-taint-webhook.image" $ }}\n'),
        Edit("imagePullPolicy: IfNotPresent\n", "imagePullPolicy: {{ $.Values.image.pullPolicy }}\n"),
        Edit(
            "      priorityClassName: system-cluster-critical\n      nodeSelector:\n        kubernetes.io/os: linux\n",
            '      {{- include "device-taint-webhook.placement" $ | nindent 6 }}\n',
        ),
        followed(
            "        istio.io/dataplane-mode: none\n",
            "        {{- with $.Values.podLabels }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n",
        ),
        followed(
            "        linkerd.io/inject: disabled\n",
            "        {{- with $.Values.podAnnotations }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n",
        ),
        followed(
            """\
        - name: POD_NAMESPACE
          valueFrom:
            fieldRef:
              apiVersion: v1
              fieldPath: metadata.namespace
""",
            f"""\
        {{{{- with include "device-taint-webhook.env" (list $ {values}) | trim }}}}
        {{{{- . | nindent 8 }}}}
        {{{{- end }}}}
""",
        ),
        Edit(
            f"""\
        resources:
          requests:
            cpu: {cpu}
            memory: 128Mi
          limits:
            memory: 512Mi
""",
            f"""\
        {{{{- with {values}.resources }}}}
        resources:
          {{{{- toYaml . | nindent 10 }}}}
        {{{{- end }}}}
""",
        ),
    )


def arguments(old: str, new: str, values: str) -> Edit:
    more = f"{{{{- range $.Values.{values}.extraArgs }}}}, {{{{ . | quote }}}}{{{{- end }}}}"
    return Edit(f"args: [{old}]\n", f"args: [{new}{more}]\n")


# --- the serving certificate, and the CA of API servers -----------------------------------------

_MOUNTS: Final = Edit(
    """\
        volumeMounts:
        - name: tls
          mountPath: /etc/device-taint-webhook/tls
          readOnly: true
      volumes:
      # The pod starts once the Secret exists; who makes it is up to the overlay. 0444, because the user is not known.
      - name: tls
        secret:
          secretName: device-taint-webhook-tls
          defaultMode: 0444
""",
    """\
        {{- if or (ne $.Values.certificates.provider "self-managed") $.Values.clientCertificates.enabled }}
        volumeMounts:
        {{- if ne $.Values.certificates.provider "self-managed" }}
        - name: tls
          mountPath: /etc/device-taint-webhook/tls
          readOnly: true
        {{- end }}
        {{- if $.Values.clientCertificates.enabled }}
        - name: client-ca
          mountPath: /etc/device-taint-webhook/client-ca
          readOnly: true
        {{- end }}
      volumes:
      # The pod starts once they exist. 0444, because the user is not known.
      {{- if ne $.Values.certificates.provider "self-managed" }}
      - name: tls
        secret:
          secretName: {{ $.Values.certificates.secretName }}
          defaultMode: 0444
      {{- end }}
      {{- if $.Values.clientCertificates.enabled }}
      - name: client-ca
        configMap:
          name: {{ $.Values.clientCertificates.configMapName }}
          defaultMode: 0444
      {{- end }}
        {{- end }}
""",
)
SERVE: Final = (
    *workload("serve", "100m"),
    Edit(
        "  replicas: 2\n",
        "  replicas: {{ $.Values.serve.replicas | default (ternary 3 2 $.Values.highAvailability) }}\n",
    ),
    wrapped(
        "      maxSurge: 1\n      maxUnavailable: 0\n",
        "not $.Values.hostNetwork",
        "      # One replica a node: a new one has no place before an old one has gone.\n"
        "      maxSurge: 0\n      maxUnavailable: 1\n",
    ),
    Edit(
        "whenUnsatisfiable: ScheduleAnyway\n",
        'whenUnsatisfiable: {{ ternary "DoNotSchedule" "ScheduleAnyway" $.Values.highAvailability }}\n',
        after="topologyKey: kubernetes.io/hostname",
    ),
    arguments("serve, --shutdown-delay=10", "serve, --shutdown-delay=10", "serve"),
    wrapped(
        "        - name: DEVICE_TAINT_WEBHOOK_CERT_DIR\n          value: /etc/device-taint-webhook/tls\n",
        'ne $.Values.certificates.provider "self-managed"',
        '        - name: DEVICE_TAINT_WEBHOOK_SELF_MANAGED_CERTIFICATES\n          value: "true"\n',
    ),
    followed(
        "              fieldPath: metadata.namespace\n",
        """\
        {{- with include "device-taint-webhook.serveEnv" $ | trim }}
        {{- . | nindent 8 }}
        {{- end }}
""",
    ),
    Edit(
        """\
        - name: webhook
          containerPort: 9443
          protocol: TCP
        - name: probes
          containerPort: 8081
          protocol: TCP
        - name: metrics
          containerPort: 8080
          protocol: TCP
""",
        """\
        {{- $ports := include "device-taint-webhook.ports" $ | fromYaml }}
        {{- range $name := list "webhook" "probes" "metrics" }}
        - name: {{ $name }}
          containerPort: {{ index $ports $name }}
          {{- if $.Values.hostNetwork }}
          hostPort: {{ index $ports $name }}
          {{- end }}
          protocol: TCP
        {{- end }}
""",
    ),
    _MOUNTS,
    Edit(
        "      dnsPolicy: ClusterFirst\n",
        """\
      {{- if $.Values.hostNetwork }}
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- else }}
      dnsPolicy: ClusterFirst
      {{- end }}
""",
    ),
)
