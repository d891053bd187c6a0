"""Pulling images ahead of their use, the manager's half: which node pulls what, how far that is, who may clean up.

| room | what it decides or does |
|---|---|
| `objects` | NodeImages as the controllers read them |
| `plan/nodes` | which nodes a job concerns |
| `plan/tags` | how a tag comes into a NodeImage, and when it leaves |
| `plan/jobs` | how far an ImagePullJob is, and which nodes are next |
| `plan/room` | how much of a NodeImage the jobs of one namespace may hold |
| `plan/nodeimages` | when a NodeImage comes and goes, and nodes that do not answer |
| `plan/changes` | what changed in a NodeImage, for those who asked there |
| `plan/lists` | the ImagePullJobs of an ImageListPullJob, and how far it is |
| `cache` | NodeImages with our own latest writes |
| `concerned` | which jobs a change concerns |
| `waiting` | jobs for which some node has no room |
| `secrets` | copies of pull secrets where node agents may read them |
| `nodeimages`, `jobs`, `lists` | the shells of the three controllers |
| `admission` | the webhooks |
| `controllers`, `slice` | the declarations |
"""
