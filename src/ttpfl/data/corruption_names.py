"""The corruptions that clients draw from; a separate file, because the corruptions need more packages."""

# The order matters: clients draw a corruption by its index.
SOURCE_CORRUPTIONS: tuple[str, ...] = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
TARGET_CORRUPTIONS: tuple[str, ...] = ("speckle_noise", "gaussian_blur", "saturate", "spatter")
