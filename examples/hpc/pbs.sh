#!/bin/bash
#PBS -N spirals
#PBS -l walltime=01:00:00
#PBS -l select=1:ncpus=4
#PBS -r y
#PBS -k oed
# PBS does not announce the end to the job, so train.py is told how long it may run. It exits with
# 75 when it has saved and has to go on in the next job, which is submitted here.

cd "$PBS_O_WORKDIR" || exit 1
python train.py --checkpoint run.ckpt --steps 20000 --time-limit 00:59:00 --margin 120 &
job=$!
trap 'again=1; kill -TERM "$job"' TERM

# A signal ends `wait` before the job ends; 127 says that there is nothing left to wait for.
again=1
while [ "$again" -eq 1 ]; do
  again=0
  wait "$job"; ended=$?
  if [ "$ended" -ne 127 ]; then status=$ended; fi
done

if [ "$status" -eq 75 ]; then
  exec qsub pbs.sh
fi
exit "$status"
