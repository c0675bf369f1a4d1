#!/bin/sh
# Fetches HUB_FILES of model HUB_ID at HUB_REVISION into FOLDER, and points FOLDER/current at them.
#   fetch-model.sh FOLDER
# Several pods may run it at once on one volume: each fills a folder of its own and renames it into
# place; the first rename wins. What is there already is not fetched again.
set -eu

folder=$1
: "${HUB_ID:?owner/name of the model}" "${HUB_REVISION:?commit of the model}" "${HUB_FILES:?file names}"
endpoint=${HUB_ENDPOINT:-https://huggingface.co}
# Each key names its model and commit: another one is another folder, and nothing is overwritten.
key=$(printf '%s' "$HUB_ID" | tr '/' '_')@$HUB_REVISION
place=$folder/$key

if [ ! -d "$place" ]; then
    aside=$folder/.new-$key-$(hostname)-$$
    trap 'rm -rf "$aside"' EXIT
    mkdir -p "$aside"
    for file in $HUB_FILES; do
        echo "fetching $HUB_ID $file"
        mkdir -p "$aside/$(dirname "$file")"
        url=$endpoint/$HUB_ID/resolve/$HUB_REVISION/$file
        # The token goes through a file descriptor: a command line is readable by others.
        if [ -n "${HUB_TOKEN-}" ]; then
            printf 'header = "Authorization: Bearer %s"\n' "$HUB_TOKEN" |
                curl --config - --fail --location --silent --show-error --retry 5 --output "$aside/$file" "$url"
        else
            curl --fail --location --silent --show-error --retry 5 --output "$aside/$file" "$url"
        fi
    done
    # Into a folder that another pod has just put there, this fails: theirs is complete.
    mv -T "$aside" "$place" 2>/dev/null || [ -d "$place" ]
fi

ln -sfn "$key" "$folder/.current-$$"
mv -T "$folder/.current-$$" "$folder/current"
echo "$HUB_ID at $HUB_REVISION is in $place"
