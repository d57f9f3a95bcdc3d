#!/bin/sh
# remove.sh REGION: removes everything left of a region, including processes that failed to
# start, which Terraform does not end.
. "$(dirname "$0")/lib.sh"
enter
for dir in $(processes "$1/*"); do
  stop "$dir"
done
rm -rf "${LAB:?}/$1"
