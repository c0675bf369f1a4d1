"""The rules of deploy/prometheus as the Prometheus operator reads them.

    rules.py           fails when the committed resource is not what the rules make
    rules.py --write   writes it
"""

import pathlib
import sys

import yaml

DEPLOY = pathlib.Path(__file__).resolve().parent.parent
RULES = DEPLOY / "prometheus" / "rules"
RESOURCE = DEPLOY / "kubernetes" / "components" / "prometheus-operator" / "rules.yaml"


def resource():
    groups = [group for file in sorted(RULES.glob("*.yaml")) for group in yaml.safe_load(file.read_text())["groups"]]
    made = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "firstlight"},
        "spec": {"groups": groups},
    }
    return "# Made from deploy/prometheus/rules by deploy/check/rules.py --write.\n" + yaml.safe_dump(
        made, sort_keys=False, width=110, allow_unicode=True
    )


def main(args):
    if args == ["--write"]:
        RESOURCE.write_text(resource())
        return 0
    if RESOURCE.read_text() == resource():
        print(f"{RESOURCE.name}: {resource().count('- record:')} recording rules, {resource().count('- alert:')} alerts")
        return 0
    print(f"{RESOURCE} is not what {RULES} makes; run rules.py --write", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
