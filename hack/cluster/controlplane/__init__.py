"""What the control plane is started with: command lines, certificates, configuration files, kwok's stages."""
