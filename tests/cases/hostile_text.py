"""Texts that a discovered name, tag, label or model may hold and that must come out as letters everywhere."""

from __future__ import annotations

CANARY = "/tmp/fleetctl-hostile-canary"

HOSTILE: dict[str, str] = {
    "jinja": "{{ lookup('pipe', 'touch " + CANARY + "') }}",
    "jinja-block": "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "jinja-comment": "{# x #}{{ 7*7 }}",
    "shell": "$(touch " + CANARY + ")",
    "shell-tick": "`touch " + CANARY + "`",
    "shell-end": "; touch " + CANARY + " #",
    "csv-formula": "=cmd|' /C calc'!A0",
    "csv-plus": "+1+1",
    "csv-minus": "-2+3",
    "csv-at": "@SUM(1+1)*cmd|' /C calc'!A0",
    "csv-tab": "\t=1+1",
    "csv-quote": '"=1+1","x',
    "csv-newline": "a\r\n=1+1",
    "html": "<script>alert(1)</script>",
    "html-attribute": '" onmouseover="alert(1)" x="',
    "html-image": "<img src=x onerror=alert(1)>",
    "hcl": '${file("/etc/passwd")}',
    "hcl-directive": '%{ if true }x%{ endif }"\n}\nresource "null_resource" "x" {',
    "promql": 'x"} or vector(1) #',
    "yaml": "x: !!python/object/apply:os.system ['id']\n- y",
    "yaml-end": "x\n---\nall: {}",
    "json": '","admin":true,"x":"',
    "ansi": "\x1b[2J\x1b]0;owned\x07",
    "bidi": "abc\u202egpj.exe",
    "nul": "a\x00b",
    "path": "../../../../etc/passwd",
    "long": "A" * 5000,
    "surrogate": "x\ud800y",
    "wide": "＝1+1",
    "line-separator": "a\u2028b\u2029c",
}
