#!/bin/bash
#SBATCH --job-name=spirals
#SBATCH --time=01:00:00
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
# Slurm sends SIGUSR1 to this script 120 seconds before the end, and SIGTERM when the job is
# preempted. Both are passed on; train.py saves and exits with 75, and the job is queued again.
# A job that dies without a word (node failure) is queued again by Slurm itself.

srun --kill-on-bad-exit=0 python train.py --checkpoint run.ckpt --steps 20000 &
job=$!
trap 'again=1; kill -USR1 "$job"' USR1 TERM

# A signal ends `wait` before the job ends; 127 says that there is nothing left to wait for.
again=1
while [ "$again" -eq 1 ]; do
  again=0
  wait "$job"; ended=$?
  if [ "$ended" -ne 127 ]; then status=$ended; fi
done

if [ "$status" -eq 75 ]; then
  scontrol requeue "$SLURM_JOB_ID"
  exit 0
fi
exit "$status"
