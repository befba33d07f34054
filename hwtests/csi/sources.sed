# csi-sanity publishes at MOUNTDIR/target; the kubelet publishes at pods/UID/volumes/kubernetes.io~csi/PV/mount.
s|TargetPath + "/target"|TargetPath + "/mount"|
