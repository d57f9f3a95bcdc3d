#!/bin/sh
# remove.sh REGION: removes all that is left of a region, processes that failed to start
# included: for those, Terraform does not ask for an end.
. "$(dirname "$0")/lib.sh"
enter
for dir in $(processes "$1/*"); do
  stop "$dir"
done
rm -rf "${LAB:?}/$1"
