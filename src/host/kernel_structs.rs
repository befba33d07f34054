//! Structures of the kernel's interfaces, with the kernel's layout, and the sizes of those that are
//! read as bytes. Contains no system call.

/// sizeof(struct dm_ioctl).
pub(crate) const DM_HEADER: usize = 312;
/// sizeof(struct xfs_fsop_geom), the result of XFS_IOC_FSGEOMETRY (fs/xfs/libxfs/xfs_fs.h).
pub(crate) const XFS_GEOMETRY: usize = 256;
/// sizeof(struct btrfs_ioctl_fs_info_args), sizeof(struct btrfs_ioctl_dev_info_args).
pub(crate) const BTRFS_FS_INFO: usize = 1024;
pub(crate) const BTRFS_DEV_INFO: usize = 4096;
/// struct btrfs_ioctl_scrub_args, which is padded to 1 KiB.
pub(crate) const BTRFS_SCRUB: usize = 1024;
/// struct btrfs_ioctl_space_args without its results, and one result.
pub(crate) const BTRFS_SPACE_HEADER: usize = 16;
pub(crate) const BTRFS_SPACE_SLOT: usize = 24;
/// sizeof(struct xfs_ag_geometry); then of struct xfs_bulk_ireq and struct xfs_bulkstat: one header
/// and any number of results form a struct xfs_bulkstat_req (fs/xfs/libxfs/xfs_fs.h).
pub(crate) const XFS_AG_GEOMETRY: usize = 128;
pub(crate) const XFS_BULK_HEADER: usize = 64;
pub(crate) const XFS_BULKSTAT: usize = 192;
/// sizeof(struct btrfs_ioctl_vol_args): an s64, and a name of 4088 bytes.
pub(crate) const BTRFS_VOL_ARGS: usize = 4096;

/// struct loop_info64.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopInfo {
    pub device: u64,
    pub inode: u64,
    pub rdevice: u64,
    pub offset: u64,
    pub size_limit: u64,
    pub number: u32,
    pub encrypt_type: u32,
    pub encrypt_key_size: u32,
    pub flags: u32,
    pub file_name: [u8; 64],
    pub crypt_name: [u8; 64],
    pub encrypt_key: [u8; 32],
    pub init: [u64; 2],
}

/// struct loop_config.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopConfig {
    pub fd: u32,
    pub block_size: u32,
    pub info: LoopInfo,
    pub reserved: [u64; 8],
}

impl LoopInfo {
    pub(crate) const EMPTY: LoopInfo = LoopInfo {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: 0,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
}

/// struct xfs_growfs_data: the number of blocks, and the maximum percentage of them for inodes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct XfsGrow {
    pub blocks: u64,
    pub inode_percent: u32,
    pub padding: u32,
}

/// struct nvme_admin_cmd (include/uapi/linux/nvme_ioctl.h): an admin command without data, and its
/// result.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NvmeAdmin {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_length: u32,
    data_length: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    /// Double word 0 of the completion.
    pub result: u32,
}

impl NvmeAdmin {
    pub(crate) fn new(opcode: u8, cdw10: u32, cdw11: u32, timeout_ms: u32) -> NvmeAdmin {
        NvmeAdmin { opcode, cdw10, cdw11, timeout_ms, ..NvmeAdmin::default() }
    }
}
