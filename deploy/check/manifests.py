"""Renders kustomizations and validates every resource in them, strictly.

    manifests.py FOLDER...

Built-in kinds go against the schemas of an older and a newer Kubernetes, custom resources against
schemas/, which hold the fields that we use. A kind with no schema fails.
Prints one line a folder, then every fault.
"""

import json
import pathlib
import subprocess
import sys

import jsonschema
import kubernetes_validate
import yaml

KUBERNETES = ("1.33", "1.37")
SCHEMAS = pathlib.Path(__file__).parent / "schemas"


def main(folders):
    faults = []
    for folder in folders:
        resources = render(folder)
        found = [f"{folder}: {fault}" for resource in resources for fault in validate(resource)]
        print(f"{folder}: {len(resources)} resources, {len(found)} faults")
        faults += found
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults or not folders else 0


def render(folder):
    """The resources that `kubectl apply -k FOLDER` would send."""
    done = subprocess.run(["kubectl", "kustomize", folder], stdout=subprocess.PIPE, text=True, check=True)
    return [resource for resource in yaml.safe_load_all(done.stdout) if resource]


def validate(resource):
    """What is wrong with one resource; empty when nothing is."""
    name = f"{resource['kind']}/{resource['metadata']['name']}"
    own = SCHEMAS / f"{resource['apiVersion'].replace('/', '_')}_{resource['kind'].lower()}.json"
    if own.exists():
        errors = jsonschema.Draft202012Validator(json.loads(own.read_text())).iter_errors(resource)
        return [f"{name}: {error.json_path}: {error.message}" for error in errors]
    faults = []
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(resource, version, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            faults.append(f"{name}: no schema for {resource['apiVersion']}; add {own.name}")
        except kubernetes_validate.ValidationError as error:
            faults.append(f"{name}: Kubernetes {version}: {error.json_path}: {error.message}")
    return faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
